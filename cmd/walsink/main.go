// Command walsink lands records exactly once in stores that have no two-phase
// commit. See walsink --help, and README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(int(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)))
}

// An app is what the commands share: the streams, and nothing global.
type app struct {
	in       io.Reader
	out, err io.Writer
	json     bool
	command  string // as walsink run, once it has ended
}

// run executes the command line and returns its exit code.
func run(args []string, in io.Reader, out, errs io.Writer) code {
	return guarded(errs, func() code {
		a := &app{in: in, out: out, err: errs}
		root := a.rootCommand()
		root.SetArgs(args)
		root.SetIn(in)
		root.SetOut(out)
		root.SetErr(errs)
		cmd, err := root.ExecuteContextC(context.Background())
		a.command = cmd.CommandPath()
		return a.report(err)
	})
}

// guarded runs f and turns a panic of the main goroutine into a message. A panic
// of another goroutine still ends the process, with its stack.
func guarded(errs io.Writer, f func() code) (result code) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(errs, "walsink: bug: %v\n%s\nwhat to do: %s\n", p, debug.Stack(), advice(codeBug))
			result = codeBug
		}
	}()
	return f()
}

// report prints err with advice and returns its exit code.
func (a *app) report(err error) code {
	if err == nil {
		return codeOK
	}
	c := classify(err)
	fmt.Fprintf(a.err, "walsink: %v\n", err)
	next := nextStep(err, c)
	if next == advice(codeUsage) && a.command != "" {
		next = "see " + a.command + " --help"
	}
	if next != "" {
		fmt.Fprintf(a.err, "what to do: %s\n", next)
	}
	return c
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "walsink",
		Short: "Land records exactly once in stores that have no two-phase commit",
		Long: "walsink buffers the output of each checkpoint in a local log, and flushes it to the store in\n" +
			"one atomic step together with a ledger mark, so that a replay changes nothing. Kill it at any\n" +
			"instant and start it again with the same command line: the store ends up with the same rows.\n\n" + codeHelp(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q: see walsink --help", args[0])
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(
		a.runCommand(),
		a.validateCommand(),
		a.doctorCommand(),
		a.statusCommand(),
		a.ledgerCommand(),
		a.auditCommand(),
		a.verifyCommand(),
		a.resetCommand(),
		a.deadLettersCommand(),
		a.drainCommand(),
		a.versionCommand(),
	)
	return root
}

// noArgs refuses arguments that are not flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// isA reports whether an error of type E is in the tree of err.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
