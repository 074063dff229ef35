package servers

import "syscall"

// childAttr makes a child that runs as the user, is not reached by the terminal's
// signals, and dies with us.
func childAttr(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
