// Command testsum runs checks and the tests of the module and ends with one line
// that says how it went:
//
//	412 passed, 0 failed, 3 skipped
//
// It prints a line per package, the output of what failed, and the reasons of what
// was skipped. It exits with 1 if anything failed, nothing was run, or, with
// CI=true in the environment, anything was skipped.
//
//	testsum [-also 'command']... [-limit duration] -- arguments of go test
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	var also []string
	flag.Func("also", "run this shell `command` too, as a check; may be repeated", func(s string) error {
		also = append(also, s)
		return nil
	})
	limit := flag.Duration("limit", 80*time.Minute, "end everything after this `time`")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()

	s := newSummary(os.Stdout)
	for _, command := range also {
		s.check(ctx, command)
	}
	if err := s.test(ctx, flag.Args()); err != nil {
		s.fail("go test", err.Error())
	}
	if ctx.Err() != nil {
		s.fail("testsum", fmt.Sprintf("ended early: %v", context.Cause(ctx)))
	}
	if !s.print(os.Getenv("CI") == "true") {
		stop()
		os.Exit(1)
	}
}

// check runs a shell command and counts it as one test.
func (s *summary) check(ctx context.Context, command string) {
	begin := time.Now()
	cmd := inGroup(ctx, "sh", "-c", command)
	out, err := cmd.CombinedOutput()
	took := time.Since(begin).Seconds()
	if err != nil {
		fmt.Fprintf(s.out, "FAIL  %s (%.1f s)\n", command, took)
		s.fail(command, fmt.Sprintf("%s%v\n", out, err))
		return
	}
	fmt.Fprintf(s.out, "ok    %s (%.1f s)\n", command, took)
	s.passed++
}

// test runs go test and takes its events in.
func (s *summary) test(ctx context.Context, args []string) error {
	cmd := inGroup(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := s.read(out)
	err = cmd.Wait()
	if _, isExit := errors.AsType[*exec.ExitError](err); isExit && len(s.failures) > 0 {
		err = nil // the events have said why
	}
	return errors.Join(readErr, err)
}

// inGroup makes a command whose whole process group is asked for its stacks when
// ctx ends, and killed a little later.
func inGroup(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 20 * time.Second
	cmd.Cancel = func() error {
		time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT)
	}
	return cmd
}

// read takes in the events of go test -json. What is not an event is printed.
func (s *summary) read(r io.Reader) error {
	d := json.NewDecoder(r)
	for {
		var e event
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			_, _ = io.Copy(io.Discard, r) // let go test end
			return fmt.Errorf("output of go test: %w", err)
		}
		s.add(e)
	}
}
