//go:build !linux

package redis_test

import "syscall"

func dieWithUs() *syscall.SysProcAttr { return nil }
