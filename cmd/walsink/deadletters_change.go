package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

func (a *app) deadReplayCommand() *cobra.Command {
	var f jobFlags
	var lanes []string
	var dryRun, acceptForm bool
	cmd := &cobra.Command{
		Use:   "replay --to DST",
		Short: "Write the dead letters into the store again, after the cause was mended",
		Long: "Replay writes dead letters into the store like any other records, each exactly once: kill it at any\n" +
			"instant and start it again. They go through a log and a ledger of their own, under a sink id made from\n" +
			"that of the lane; walsink ledger --id shows it. What is in is dropped from the dead letters. What the\n" +
			"store refuses again is put aside again, with the new reason, and the exit code is 4; the rest is in.\n" +
			"Replayed records come after those that the lane has written since.\n\n" + codeHelp(),
		Example: "  walsink deadletters replay --to 'postgres://me@localhost/birds?table=sightings'\n" +
			"  walsink deadletters replay --to 'redis://localhost/0?key={id}' --lane 000",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOpenBox(cmd.Context(), &f, noSample, func(ctx context.Context, _ *job, b *deadBox) error {
				b.acceptForm = acceptForm
				return a.replayDead(ctx, b, lanes, dryRun)
			})
		},
	}
	f.register(cmd, "to write them to", slices.Concat(placeKeys, logKeys)...)
	cmd.Flags().StringArrayVar(&lanes, "lane", nil, "only this `lane`; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say how many would be replayed, and do nothing")
	cmd.Flags().BoolVar(&acceptForm, "accept-form", false, "take letters whose batch the ledger no longer remembers for records of today's table")
	a.jsonFlag(cmd)
	return cmd
}

// A replayReport is what a replay did with one lane.
type replayReport struct {
	Lane     string `json:"lane"`
	Replayed uint64 `json:"replayed"`
	Again    uint64 `json:"refused_again"`
	Dropped  uint64 `json:"dropped"`
	Under    string `json:"under"` // the lane of the replay
	Waiting  uint64 `json:"waiting,omitempty"`
}

// errAgain says that the store refused replayed records again.
var errAgain = errors.New("the store refused records again")

func (a *app) replayDead(ctx context.Context, b *deadBox, names []string, dryRun bool) error {
	lanes, err := b.lanes(ctx, names)
	if err != nil {
		return err
	}
	stop := newStopper(ctx, drainEnd, a.note, a.cut).listen()
	defer stop.close()
	reports, again := []replayReport{}, uint64(0)
	// The last first: what is refused again is not tried twice.
	for _, l := range slices.Backward(lanes) {
		waiting, err := b.waiting(stop.ctx, l)
		if err != nil {
			return err
		}
		if waiting == 0 && !b.interrupted(l.LaneID) {
			continue
		}
		r := replayReport{Lane: l.String(), Under: walsink.ReplayLane(l.LaneID).String(), Waiting: waiting}
		if !dryRun {
			if r, err = a.replayLane(stop.ctx, b, l); err != nil {
				if stop.stopped() {
					err = fmt.Errorf("%w: %w", errStopped, err)
				}
				return err
			}
		}
		again += r.Again
		reports = append(reports, r)
	}
	if err := a.printReplays(reports, dryRun); err != nil {
		return err
	}
	if again > 0 {
		return &storeError{&advised{fmt.Errorf("%w: %s", errAgain, count(again, "dead letter")), "walsink deadletters list names the new reasons; mend the cause, then replay again"}}
	}
	return nil
}

// waiting counts the dead letters of a lane.
func (b *deadBox) waiting(ctx context.Context, l deadLane) (n uint64, err error) {
	for _, err := range b.box.DeadLetters(ctx, l.LaneID, sinks.LetterID{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// replayDir is the directory of a replay, beside that of the job.
func (b *deadBox) replayDir(lane sinks.LaneID) string {
	return filepath.Join(filepath.Clean(b.state)+".deadletters", walsink.ReplayLane(lane).Sink)
}

// interrupted reports whether a replay of the lane was killed here.
func (b *deadBox) interrupted(lane sinks.LaneID) bool {
	entries, err := os.ReadDir(b.replayDir(lane))
	return err == nil && len(entries) > 0
}

func (a *app) replayLane(ctx context.Context, b *deadBox, l deadLane) (r replayReport, err error) {
	opts := outputOptions(b.output, newLogger(a.err))
	opts.Dir = b.replayDir(l.LaneID)
	if b.acceptForm {
		opts.Flush.Accept |= committer.AcceptForm
	}
	if err := os.MkdirAll(filepath.Dir(opts.Dir), 0o700); err != nil {
		return r, &stateError{err}
	}
	done, err := walsink.ReplayDeadLetters(ctx, b.sink, l.LaneID, opts)
	if errors.Is(err, walsink.ErrFormForgotten) {
		return r, &advised{err, "if no column's type and no order of columns has changed since, replay with --accept-form; if one has, walsink deadletters show prints the letters, " +
			"to be put in by hand, and drop forgets them"}
	}
	if err != nil {
		return r, opening(err)
	}
	// The ledger knows all that the directory does.
	if err := errors.Join(os.RemoveAll(opts.Dir), ignoreNotEmpty(os.Remove(filepath.Dir(opts.Dir)))); err != nil {
		return r, &stateError{err}
	}
	return replayReport{
		Lane: l.String(), Replayed: done.Letters - min(done.Again, done.Letters), Again: done.Again, Dropped: done.Dropped,
		Under: walsink.ReplayLane(l.LaneID).String(),
	}, nil
}

// ignoreNotEmpty forgives that other replays have directories beside.
func ignoreNotEmpty(err error) error {
	if errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (a *app) printReplays(reports []replayReport, dryRun bool) error {
	if a.json {
		return a.printJSON(reports)
	}
	if len(reports) == 0 {
		_, err := fmt.Fprintln(a.out, "no dead letters to replay")
		return err
	}
	for _, r := range reports {
		switch {
		case dryRun:
			fmt.Fprintf(a.out, "lane %s: %s would be replayed, under %s\n", r.Lane, count(r.Waiting, "dead letter"), r.Under)
		case r.Again > 0:
			fmt.Fprintf(a.out, "lane %s: %s replayed, %s refused again, now of lane %s\n", r.Lane, count(r.Replayed, "dead letter"), group(r.Again), r.Under)
		default:
			fmt.Fprintf(a.out, "lane %s: %s replayed\n", r.Lane, count(r.Replayed, "dead letter"))
		}
	}
	return nil
}

func (a *app) deadDropCommand() *cobra.Command {
	var f jobFlags
	var lanes []string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "drop LANE:CHECKPOINT:NUMBER... --to DST",
		Short: "Remove dead letters for ever",
		Long: "Drop removes the dead letters that are named, or with --all those of all lanes or of the lanes that\n" +
			"--lane names. Their records are lost: to keep them, print them first with show.\n\n" + codeHelp(),
		Example: "  walsink deadletters drop public.sightings/000:7:3 --to 'postgres://me@localhost/birds?table=sightings'\n" +
			"  walsink deadletters drop --all --lane 000 --to 'file:out?format=ndjson'",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("--all and names of dead letters: give one of them")
			case !all && len(args) == 0:
				return usagef("which dead letters: name them as LANE:CHECKPOINT:NUMBER, or give --all")
			case !all && len(lanes) > 0:
				return usagef("--lane goes with --all")
			}
			return a.withBox(cmd.Context(), &f, func(ctx context.Context, b *deadBox) error {
				return a.dropDead(ctx, b, args, lanes, dryRun)
			})
		},
	}
	f.register(cmd, "to remove them from", placeKeys...)
	cmd.Flags().BoolVar(&all, "all", false, "all there are")
	cmd.Flags().StringArrayVar(&lanes, "lane", nil, "with --all: only this `lane`; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be removed, and do nothing")
	a.jsonFlag(cmd)
	return cmd
}

// dropDead drops the letters that are named; if none is, all of the lanes.
func (a *app) dropDead(ctx context.Context, b *deadBox, letters, names []string, dryRun bool) error {
	drop := make(map[sinks.LaneID][]sinks.LetterID)
	for _, text := range letters {
		l, d, err := b.find(ctx, text)
		if err != nil {
			return err
		}
		drop[l.LaneID] = append(drop[l.LaneID], d.ID())
	}
	if len(letters) == 0 {
		lanes, err := b.lanes(ctx, names)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			for d, err := range b.box.DeadLetters(ctx, l.LaneID, sinks.LetterID{}) {
				if err != nil {
					return err
				}
				drop[l.LaneID] = append(drop[l.LaneID], d.ID())
			}
		}
	}
	n := uint64(0)
	for id, ids := range drop {
		if b.interrupted(id) {
			return usagef("lane %s: a replay of its dead letters was interrupted, and has taken some of them: finish it first, with deadletters replay", id)
		}
		n += uint64(len(ids))
	}
	for id, ids := range drop {
		if dryRun {
			break
		}
		if err := b.box.DropDeadLetters(ctx, id, ids); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(map[string]any{"dropped": n, "dry_run": dryRun})
	}
	verb := "dropped"
	if dryRun {
		verb = "would be dropped"
	}
	_, err := fmt.Fprintf(a.out, "%s %s\n", count(n, "dead letter"), verb)
	return err
}
