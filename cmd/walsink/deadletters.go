package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks"
)

func (a *app) deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deadletters",
		Short: "List, show, replay or drop the records that the store refused",
		Long: "With --dead-letters a run puts records aside that the store refuses, in the same atomic step as the good\n" +
			"ones. These commands work on them; a run of the job may be at work meanwhile. A dead letter is named\n" +
			"LANE:CHECKPOINT:NUMBER, as list prints it.\n\n" + codeHelp(),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.deadListCommand(), a.deadShowCommand(), a.deadReplayCommand(), a.deadDropCommand())
	return cmd
}

func (a *app) deadListCommand() *cobra.Command {
	var f jobFlags
	var lanes []string
	cmd := &cobra.Command{
		Use:     "list --to DST",
		Short:   "List the dead letters, with reason, lane, checkpoint, record number and column",
		Long:    "List prints the dead letters of a sink id, and those of its replays that were refused again.\n\n" + codeHelp(),
		Example: "  walsink deadletters list --to 'postgres://me@localhost/birds?table=sightings'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBox(cmd.Context(), &f, func(ctx context.Context, b *deadBox) error { return a.listDead(ctx, b, lanes) })
		},
	}
	f.register(cmd, "whose dead letters to list", placeKeys...)
	cmd.Flags().StringArrayVar(&lanes, "lane", nil, "only this `lane`; may be repeated")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) deadShowCommand() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "show LANE:CHECKPOINT:NUMBER --to DST",
		Short: "Print one dead letter with its record",
		Long: "Show prints a dead letter as JSON. Its record is in the form that the sink takes: JSON as it is, other\n" +
			"text as a JSON string, anything else in base 64.\n\n" + codeHelp(),
		Example: "  walsink deadletters show public.sightings/000:7:3 --to 'postgres://me@localhost/birds?table=sightings'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("deadletters show takes one LANE:CHECKPOINT:NUMBER, got %d", len(args))
			}
			return a.withBox(cmd.Context(), &f, func(ctx context.Context, b *deadBox) error { return a.showDead(ctx, b, args[0]) })
		},
	}
	f.register(cmd, "that has the dead letter", placeKeys...)
	a.jsonFlag(cmd)
	return cmd
}

// A deadBox is an open store with the dead letters of a sink id.
type deadBox struct {
	*output
	sink   sinks.Sink
	box    sinks.DeadLetterBox
	ledger sinks.Ledger

	acceptForm bool // of a replay
}

// withBox opens the store of a job's output for looking at its dead letters.
func (a *app) withBox(ctx context.Context, f *jobFlags, use func(context.Context, *deadBox) error) error {
	return a.withOpenBox(ctx, f, nil, func(ctx context.Context, _ *job, b *deadBox) error { return use(ctx, b) })
}

// withOpenBox is withBox with a sampler, for opening the store in earnest.
func (a *app) withOpenBox(ctx context.Context, f *jobFlags, sample sampler, use func(context.Context, *job, *deadBox) error) (err error) {
	j, err := f.load()
	if err == nil {
		err = j.needTo("the store that has the dead letters")
	}
	if err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	s, err := o.target.open(ctx, sample)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.sink.Close()) }()
	b := &deadBox{output: o, sink: s.sink}
	var ok, lists bool
	b.box, ok = s.sink.(sinks.DeadLetterBox)
	b.ledger, lists = s.sink.(sinks.Ledger)
	if !ok || !lists {
		return &storeError{fmt.Errorf("%s: this store cannot give out dead letters", s.sink.Info().Name)}
	}
	return use(ctx, j, b)
}

// A deadLane is a lane that may have dead letters, and what was replayed of them.
type deadLane struct {
	sinks.LaneID
	replayed sinks.LetterID // the last that is in again; zero if none
}

// lanes are those of the sink id, and of replays of them, each behind the one whose
// letters it had. Names, if there are any, select.
func (b *deadBox) lanes(ctx context.Context, names []string) ([]deadLane, error) {
	marks, err := b.ledger.Marks(ctx, b.id)
	if err != nil {
		return nil, err
	}
	var all []deadLane
	for _, m := range marks {
		for id := m.LaneID; ; {
			next := walsink.ReplayLane(id)
			replays, err := b.ledger.Marks(ctx, next.Sink)
			if err != nil {
				return nil, err
			}
			l := deadLane{LaneID: id}
			if len(replays) > 0 {
				if l.replayed, err = walsink.ReplayedTo(replays[0].Mark); err != nil {
					return nil, err
				}
			}
			all = append(all, l)
			if len(replays) == 0 {
				break
			}
			id = next
		}
	}
	return b.selected(all, names)
}

func (b *deadBox) selected(all []deadLane, names []string) ([]deadLane, error) {
	if len(names) == 0 {
		return all, nil
	}
	var some []deadLane
	for _, name := range names {
		i := slices.IndexFunc(all, func(l deadLane) bool { return l.String() == name || l.Sink == b.id && l.Lane == name })
		if i < 0 {
			return nil, usagef("--lane %s: the ledger has no such lane; walsink ledger lists those there are", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

// A deadReport is a dead letter as it is printed.
type deadReport struct {
	Name       string `json:"name"`
	Lane       string `json:"lane"`
	Checkpoint uint64 `json:"checkpoint"`
	Number     uint64 `json:"number"`
	Field      string `json:"field,omitempty"`
	Code       string `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Bytes      int    `json:"bytes"`
	// Replayed says that the record is in, by a replay that was killed before it could
	// drop the letter.
	Replayed bool `json:"replayed,omitempty"`
	Record   any  `json:"record,omitempty"`
}

func (l deadLane) report(d sinks.DeadLetter) deadReport {
	return deadReport{
		Name: l.String() + ":" + d.ID().String(), Lane: l.String(), Checkpoint: d.Checkpoint, Number: d.Number,
		Field: d.Field, Code: d.Code, Reason: d.Reason, Bytes: len(d.Record), Replayed: d.ID().Compare(l.replayed) <= 0,
	}
}

func (a *app) listDead(ctx context.Context, b *deadBox, names []string) error {
	lanes, err := b.lanes(ctx, names)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	n := 0
	for _, l := range lanes {
		for d, err := range b.box.DeadLetters(ctx, l.LaneID, sinks.LetterID{}) {
			if err != nil {
				return errors.Join(w.Flush(), err)
			}
			r := l.report(d)
			if n++; n == 1 && !a.json {
				fmt.Fprintln(w, "DEAD LETTER\tCOLUMN\tCODE\tBYTES\tREASON")
			}
			if a.json {
				if err := a.printJSONLine(r); err != nil {
					return err
				}
				continue
			}
			if r.Replayed {
				r.Reason = "replayed, to be dropped by the next replay"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", r.Name, r.Field, r.Code, r.Bytes, r.Reason)
		}
	}
	if err := w.Flush(); err != nil || n > 0 || a.json {
		return err
	}
	_, err = fmt.Fprintf(a.out, "no dead letters of sink id %s\n", b.id)
	return err
}

// parseLetter reads LANE:CHECKPOINT:NUMBER.
func parseLetter(text string) (lane string, id sinks.LetterID, err error) {
	bad := usagef("%q: want LANE:CHECKPOINT:NUMBER, as deadletters list prints them", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] == "" {
		return "", id, bad
	}
	for i, to := range []*uint64{&id.Checkpoint, &id.Number} {
		if *to, err = strconv.ParseUint(parts[i+1], 10, 64); err != nil {
			return "", id, bad
		}
	}
	return parts[0], id, nil
}

// find is one dead letter of the store.
func (b *deadBox) find(ctx context.Context, text string) (l deadLane, d sinks.DeadLetter, err error) {
	name, id, err := parseLetter(text)
	if err != nil {
		return l, d, err
	}
	lanes, err := b.lanes(ctx, []string{name})
	if err != nil {
		return l, d, err
	}
	after := id
	if after.Number > 0 {
		after.Number--
	} else if after.Checkpoint > 0 {
		after = sinks.LetterID{Checkpoint: id.Checkpoint - 1, Number: 1<<63 - 1}
	}
	for d, err := range b.box.DeadLetters(ctx, lanes[0].LaneID, after) {
		if err != nil {
			return l, d, err
		}
		if d.ID() == id {
			d.Record = slices.Clone(d.Record)
			return lanes[0], d, nil
		}
		break
	}
	return l, d, usagef("%s: there is no such dead letter; deadletters list names those there are", text)
}

func (a *app) showDead(ctx context.Context, b *deadBox, text string) error {
	l, d, err := b.find(ctx, text)
	if err != nil {
		return err
	}
	r := l.report(d)
	r.Record = shownRecord(d.Record)
	return a.printJSON(r)
}

// shownRecord is a record as a value of JSON.
func shownRecord(rec []byte) any {
	if v, ok := rawJSON(rec); ok {
		return v
	}
	if utf8.Valid(rec) {
		return string(rec)
	}
	return map[string][]byte{"base64": rec}
}
