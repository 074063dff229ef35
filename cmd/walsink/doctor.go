package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
)

func (a *app) doctorCommand() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "doctor --from SRC --to DST",
		Short: "Say what a job would really guarantee, and why",
		Long: "Doctor takes the flags of run and looks at sources, state directories and stores as run would find them.\n" +
			"Each check is pass, weaker (the guarantee is less than exactly-once) or refuse (run would fail, or break\n" +
			"its promise silently). Below a check stands what to change or to know. Nothing is made, read away or left\n" +
			"behind, and a run may be at work meanwhile.\n\n" +
			"The exit code is 0 if the end-to-end guarantee is what --require asks for, by default exactly-once; 10 if\n" +
			"it is weaker, or a check is refuse; 4 if a store cannot be reached, so that nothing is known of it.\n\n" + codeHelp(),
		Example: "  walsink doctor --from ndjson:events.ndjson --to 'postgres://loader@db/shop?table=events' --state /var/lib/walsink\n" +
			"  walsink doctor --config walsink.yaml --json | jq -r '.checks[] | select(.result != \"pass\") | .change'",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.doctor(cmd.Context(), j)
		},
	}
	f.register(cmd, "to look at")
	a.jsonFlag(cmd)
	return cmd
}

// Results of a check.
const (
	pass   = "pass"
	weaker = "weaker"
	refuse = "refuse"
)

// A check is one thing that doctor looked at.
type check struct {
	Subject string `json:"subject"`
	Check   string `json:"check"`
	Result  string `json:"result"`
	Found   string `json:"found"`
	Change  string `json:"change,omitempty"`

	at pipeline.Guarantee // what the job can give because of it
}

// A diagnosis is what doctor says.
type diagnosis struct {
	Guarantee string  `json:"guarantee"`
	Required  string  `json:"required"`
	Reason    string  `json:"reason,omitempty"`
	Met       bool    `json:"met"`
	Checks    []check `json:"checks"`

	unreached error // a store that nothing is known of
	refused   bool
}

// word is the guarantee, or that there is nothing to be run.
func (d *diagnosis) word() string {
	if d.refused {
		return refuse
	}
	return d.Guarantee
}

// doctor looks at a job and prints what it found.
func (a *app) doctor(ctx context.Context, j *job) error {
	if err := firstErr(j.needFrom(), j.needTo("where the records go"), j.eatsItself()); err != nil {
		return err
	}
	d, err := diagnose(ctx, j)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(d)
	} else {
		err = a.printDiagnosis(d)
	}
	switch {
	case err != nil:
		return err
	case d.unreached != nil:
		return &storeError{d.unreached}
	case !d.Met:
		return fmt.Errorf("%w: required %s, found %s: %s", pipeline.ErrGuarantee, d.Required, d.word(), oneLine(d.Reason))
	}
	return nil
}

// diagnose looks at everything. An error is a mistake in the configuration.
func diagnose(ctx context.Context, j *job) (*diagnosis, error) {
	d := &diagnosis{Required: cmp.Or(j.require, pipeline.ExactlyOnce.String())}
	for _, spec := range j.from {
		found, err := examineSource(ctx, spec, j)
		if err != nil {
			return nil, err
		}
		d.Checks = append(d.Checks, found...)
	}
	for _, o := range j.outputs {
		d.Checks = append(d.Checks, examineState(o.state, o.log)...)
		found, err := examineStore(ctx, j.label(o), o.target)
		if isA[*usageError](err) {
			return nil, err
		}
		if err != nil && d.unreached == nil {
			d.unreached = fmt.Errorf("store %s: %w", j.label(o), err)
		}
		d.Checks = append(d.Checks, found...)
	}
	d.conclude()
	return d, nil
}

// conclude finds the weakest check, and compares it with what is required.
func (d *diagnosis) conclude() {
	least := pipeline.ExactlyOnce
	for _, c := range d.Checks {
		d.refused = d.refused || c.Result == refuse
		if c.at < least {
			least = c.at
			d.Reason = c.Subject + ": " + c.Check + ": " + c.Found
		}
	}
	d.Guarantee = least.String()
	if d.unreached != nil {
		d.Guarantee, d.Reason = "unknown", d.unreached.Error()
	}
	d.Met = !d.refused && least >= guarantees[d.Required]
}

// examineStore is what a store says about itself. An error is one that cannot be reached:
// it is the only check then.
func examineStore(ctx context.Context, name string, t target) ([]check, error) {
	subject := "store " + name
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	found, err := t.store.probe(ctx, t.endpoint)
	if err != nil {
		return []check{refused(subject, "reachable", err.Error(), whyUnreached(err))}, err
	}
	checks := []check{passed(subject, "reachable", "yes", "")}
	for _, f := range found {
		checks = append(checks, checkOf(subject, f))
	}
	return checks, nil
}

// whyUnreached says what to do about a store that does not answer.
func whyUnreached(err error) string {
	if mends(err, nameTime) {
		return "start it, or let run wait for it: see --wait-store"
	}
	return "change the address, or what the error names: run does not wait for it"
}

// checkOf is a finding of a probe.
func checkOf(subject string, f sinks.Finding) check {
	switch {
	case f.Refuse:
		return refused(subject, f.Subject, f.Found, f.Advice)
	case f.Guarantee < sinks.ExactlyOnce:
		return check{subject, f.Subject, weaker, f.Found, f.Advice, pipeline.AtLeastOnce}
	}
	return passed(subject, f.Subject, f.Found, f.Advice)
}

func passed(subject, name, found, change string) check {
	return check{subject, name, pass, found, change, pipeline.ExactlyOnce}
}

func refused(subject, name, found, change string) check {
	return check{subject, name, refuse, found, change, pipeline.AtMostOnce}
}

// printDiagnosis prints a table for people: the checks of each subject below its name,
// and what to change below each.
func (a *app) printDiagnosis(d *diagnosis) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	subject := ""
	for _, c := range d.Checks {
		if c.Subject != subject {
			subject = c.Subject
			fmt.Fprintf(w, "%s\n", subject)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Result, c.Check, oneLine(c.Found))
		if c.Change != "" {
			fmt.Fprintf(w, "  \t\t-> %s\n", oneLine(c.Change))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	text := "end to end: " + d.Guarantee
	if d.Reason != "" {
		text += ", because of " + oneLine(d.Reason)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// oneLine keeps a text from breaking the table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
