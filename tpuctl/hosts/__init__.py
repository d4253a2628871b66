"""What happens on a VM: startup script, host daemon, the keeper of Ray on the head, notice, clean-up, probe."""
