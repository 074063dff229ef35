package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
)

// resetFlags are the flags of reset alone.
type resetFlags struct {
	fromStart bool
	dryRun    bool
}

func (f *resetFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.fromStart, "from-start", false, "forget where the sources were: the next run reads them from their beginning; needs --accept-duplicates")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say how it stands and what each way out accepts, and change nothing")
}

func (a *app) resetCommand() *cobra.Command {
	var f jobFlags
	var r resetFlags
	cmd := &cobra.Command{
		Use:   "reset --to DST",
		Short: "Take an explicit way out of a refusal to start",
		Long: "Reset compares log and ledger as a start does, says why the start would be refused, and what each way\n" +
			"out accepts. It takes one only if a flag names it, brings in what is complete, and reads no source: the\n" +
			"next run goes on from there. Restoring what is missing, where that is possible, is always better: it accepts nothing.\n" +
			"Give the same --from as for run: what a source can do decides which ways there are. The exit code is 6\n" +
			"while a start would be refused and no way out is named, also with --dry-run.\n\n" + resetHelp() + "\n" + codeHelp(),
		Example: "  walsink reset --from ndjson:events.ndjson --to 'file:out?format=ndjson' --state state --dry-run\n" +
			"  walsink reset --from ndjson:events.ndjson --to 'file:out?format=ndjson' --state state --accept-loss",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.reset(cmd.Context(), j, r)
		},
	}
	f.register(cmd, "to reset the ledger of", slices.Concat(placeKeys, logKeys, []string{"from", "accept-duplicates", "accept-loss"})...)
	r.register(cmd.Flags())
	a.jsonFlag(cmd)
	return cmd
}

// resetHelp is the table of refusals.
func resetHelp() string {
	var b strings.Builder
	b.WriteString("Refusals, and the ways out:\n")
	for _, r := range refusals {
		fmt.Fprintf(&b, "  %v\n", r.err)
		for _, w := range r.ways {
			fmt.Fprintf(&b, "    %s\n        %s\n", w.Flag, w.Accepts)
		}
	}
	return b.String() + "  a batch is damaged\n    walsink verify --set-aside LANE:BATCH\n" +
		"  a newer owner has taken the lanes over\n    nothing is to be reset: stop one of the two, or give each its own --id\n"
}

// A resetReport is how log and ledger stand to each other, and what was done about it.
type resetReport struct {
	ID      string      `json:"id"`
	State   string      `json:"state"`
	Log     bool        `json:"log"`
	Lanes   []laneStand `json:"lanes"`
	Refusal string      `json:"refusal,omitempty"`
	Ways    []way       `json:"ways,omitempty"`
	// Taken is the flag of the way that was taken, or would be.
	Taken string `json:"taken,omitempty"`
	Done  bool   `json:"done"`
}

// A laneStand is one lane: what the store has, and what the log has.
type laneStand struct {
	Lane      string `json:"lane"`
	StoreSeq  uint64 `json:"store_seq"`
	Store     uint64 `json:"store_checkpoint"`
	Records   uint64 `json:"store_records"`
	LogSeq    uint64 `json:"log_seq"`
	Committed uint64 `json:"log_committed_seq"`
	Outcome   string `json:"outcome"`
}

func (a *app) reset(ctx context.Context, j *job, f resetFlags) error {
	if err := j.needTo("the store whose ledger to reset"); err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	if o.flush.loss && o.flush.duplicates {
		return usagef("--accept-duplicates and --accept-loss are two ways out: give one")
	}
	if f.fromStart && !o.flush.duplicates {
		return usagef("--from-start accepts that what the sources still have comes into the store again: give --accept-duplicates with it")
	}
	if err := ownState(o.state); err != nil {
		return err
	}
	r, err := a.inspect(ctx, j, o)
	if err != nil {
		return err
	}
	r.Taken = taken(o, f)
	switch {
	case r.Refusal == "" && !f.fromStart:
	case r.Taken == "":
		err = &advised{fmt.Errorf("%w: no way out was chosen", errRefusal), o.ways(j, r)}
	default:
		if err = a.announce(r); err == nil && !f.dryRun {
			err = o.advise(j, a.takeOver(ctx, j, o, f))
			r.Done = err == nil
		}
	}
	return errors.Join(a.printReset(r), err)
}

// errRefusal says that a start would be refused.
var errRefusal = errors.New("a start is refused")

// taken is the way that the flags name.
func taken(o *output, f resetFlags) string {
	switch {
	case f.fromStart:
		return "--from-start --accept-duplicates"
	case o.flush.loss:
		return "--accept-loss"
	case o.flush.duplicates:
		return "--accept-duplicates"
	}
	return ""
}

// ways lists the commands of the ways out.
func (o *output) ways(j *job, r *resetReport) string {
	var b strings.Builder
	b.WriteString("restore what is missing, or take a way out")
	for _, w := range r.Ways {
		fmt.Fprintf(&b, "\n  %s %s\n      %s", o.resetCommand(j), w.Flag, w.Accepts)
	}
	return b.String()
}

// resetOptions are those of the output, as a run of the job has them.
func (a *app) resetOptions(j *job, o *output) walsink.Options {
	opts := outputOptions(o, newLogger(a.err))
	opts.Flush.NoReplay = j.noReplay()
	opts.Flush.MaxAttempts = 1
	return opts
}

// inspect says how a start would go on, without a way out.
func (a *app) inspect(ctx context.Context, j *job, o *output) (r *resetReport, err error) {
	s, err := o.target.open(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.sink.Close()) }()
	opts := a.resetOptions(j, o)
	opts.Flush.Accept = 0
	in, err := walsink.Inspect(ctx, s.sink, opts)
	if err != nil {
		return nil, o.advise(j, o.locate(opening(err)))
	}
	r = &resetReport{ID: o.id, State: o.state, Log: in.Log, Lanes: []laneStand{}}
	for _, l := range in.Lanes {
		st := laneStand{
			Lane: l.String(), StoreSeq: l.Mark.Seq, Store: l.Mark.Checkpoint, Records: l.Mark.Records,
			LogSeq: l.Head.Seq, Committed: l.Committed, Outcome: "refused",
		}
		if l.Refusal == nil {
			st.Outcome = l.Outcome.String()
		}
		r.Lanes = append(r.Lanes, st)
	}
	if in.Refusal != nil {
		r.Refusal, r.Ways = in.Refusal.Error(), waysOut(in.Refusal)
	}
	return r, nil
}

// announce says what is accepted before it is done.
func (a *app) announce(r *resetReport) error {
	ways := r.Ways
	if r.Taken != "" && len(ways) == 0 {
		ways = waysOut(committer.ErrForeignPosition)
	}
	for _, w := range ways {
		if w.Flag == r.Taken {
			a.note(r.Taken + " accepts: " + w.Accepts)
			return nil
		}
	}
	return &advised{fmt.Errorf("%w, and %s is no way out of it: %s", errRefusal, r.Taken, r.Refusal), "walsink reset --dry-run lists the ways there are"}
}

// takeOver opens the output accepting what the flags say, and brings in what is complete:
// the mark that comes of it is what makes the way out final.
func (a *app) takeOver(ctx context.Context, j *job, o *output, f resetFlags) (err error) {
	s, err := o.target.open(ctx, j.sampler(newLogger(a.err)))
	if err != nil {
		return err
	}
	out, err := walsink.Open(ctx, s.sink, a.resetOptions(j, o))
	if err != nil {
		return o.locate(opening(err))
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := out.Drain(ctx); err != nil || !f.fromStart {
		return err
	}
	if len(out.Barriers()) > 0 {
		return fmt.Errorf("%w: the lanes are apart, so that checkpoints have to be repeated first; or use another --id", errRefusal)
	}
	_, err = out.Checkpoint(ctx, nil)
	return err
}

func (a *app) printReset(r *resetReport) error {
	if a.json {
		return a.printJSON(r)
	}
	if !r.Log {
		fmt.Fprintf(a.out, "there is no log in %s\n", r.State)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "LANE\tIN STORE\tCHECKPOINT\tRECORDS\tIN LOG\tCOMMITTED\tSTART\t")
	for _, l := range r.Lanes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%s\t\n", l.Lane, l.StoreSeq, l.Store, group(l.Records), l.LogSeq, l.Committed, l.Outcome)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case r.Done:
		fmt.Fprintf(a.out, "done: %s; start the run again without it\n", r.Taken)
	case r.Refusal == "" && r.Taken == "":
		fmt.Fprintln(a.out, "a start is not refused: there is nothing to reset")
	case r.Refusal == "":
		fmt.Fprintf(a.out, "a start is not refused; %s was not needed\n", r.Taken)
	default:
		fmt.Fprintf(a.out, "a start is refused: %s\n", r.Refusal)
		for _, w := range r.Ways {
			fmt.Fprintf(a.out, "  %s\n      %s\n", w.Flag, w.Accepts)
		}
	}
	return nil
}
