package redis_test

import "syscall"

// dieWithUs ends servers with a test process that is killed.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
