"""The cloud as the rest of tpuctl sees it: model, clients, errors. Only this room imports Google's clients."""
