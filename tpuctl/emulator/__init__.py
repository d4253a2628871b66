"""A cloud on this machine: one state machine, a REST face, VMs as processes. It knows nothing of tpuctl."""
