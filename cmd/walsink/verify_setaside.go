package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/wal"
)

const setAsideHelp = "With --set-aside LANE:BATCH it lets the rest go on where a damaged batch stops its lane at every start:\n" +
	"  --replay                      takes the batch and what follows in its lane out of the log; the next run reads\n" +
	"                                the source again from what the store has. Nothing is lost, if the source can\n" +
	"                                be read again: files can, standard input cannot\n" +
	"  --accept-loss --salvage FILE  gives this one batch up: what can still be read goes to FILE, the ledger counts\n" +
	"                                all its records as dead, and what follows goes to the store. LOSES RECORDS\n"

// setAsideFlags are the flags of verify --set-aside.
type setAsideFlags struct {
	batch   string
	replay  bool
	loss    bool
	salvage string
	dryRun  bool
}

func (f *setAsideFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.batch, "set-aside", "", "let the lane go on without this damaged `LANE:BATCH`, as sink/lane:7")
	fs.BoolVar(&f.replay, "replay", false, "with --set-aside: have the source read again; loses nothing")
	fs.BoolVar(&f.loss, "accept-loss", false, "with --set-aside: give the batch up for ever; needs --salvage")
	fs.StringVar(&f.salvage, "salvage", "", "with --accept-loss: new `file` for what can still be read of the batch")
	fs.BoolVar(&f.dryRun, "dry-run", false, "with --set-aside: say what would be done, and do nothing")
}

// any reports whether one of the flags is set that go with --set-aside.
func (f setAsideFlags) any() bool { return f.replay || f.loss || f.salvage != "" || f.dryRun }

// check refuses flags that do not say which way out is meant.
func (f setAsideFlags) check() error {
	switch {
	case f.replay && f.loss:
		return usagef("--replay and --accept-loss are two ways out: give one")
	case f.loss && f.salvage == "":
		return usagef("--accept-loss needs --salvage FILE, for what can still be read of the batch")
	case f.salvage != "" && !f.loss:
		return usagef("--salvage goes with --accept-loss")
	}
	return nil
}

// A setAsideReport is what was done about a batch.
type setAsideReport struct {
	Lane       string `json:"lane"`
	Batch      uint64 `json:"batch"`
	Checkpoint uint64 `json:"checkpoint"`
	Records    uint64 `json:"records"`
	// Way is "replay" or "give up"; empty if neither was chosen.
	Way string `json:"way,omitempty"`
	// Batches and Pending are taken out of the log by a replay, for the source to send
	// again: so many, with so many records.
	Batches int    `json:"batches,omitempty"`
	Pending uint64 `json:"records_to_replay,omitempty"`
	// Salvaged records are in File; Damage is what could not be read.
	Salvaged uint64   `json:"salvaged"`
	File     string   `json:"file,omitempty"`
	Damage   []string `json:"damage"`
	Done     bool     `json:"done"`
}

// setAside lets a lane go on without a damaged batch.
func (a *app) setAside(j *job, f setAsideFlags) (err error) {
	lane, seq, err := parseBatch("set-aside", f.batch)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return err
	}
	o, err := j.one()
	if err != nil {
		return err
	}
	l, err := a.openState(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	b, err := findBatch(l, "set-aside", lane, seq)
	if err != nil {
		return err
	}
	if _, committed, _ := l.Head(lane); seq <= committed {
		return usagef("--set-aside %s: the store has this batch; nothing waits for it", f.batch)
	}
	if done, err := committer.GivenUp(l, lane, b); err == nil && done {
		return usagef("--set-aside %s: this batch was given up before; start the run again", f.batch)
	}
	r := &setAsideReport{Lane: lane, Batch: seq, Checkpoint: b.Checkpoint, Records: b.Records, Damage: []string{}}
	if err := a.survey(l, b, r, nil); err != nil {
		return err
	}
	if len(r.Damage) == 0 {
		return usagef("--set-aside %s: this batch is whole: nothing is wrong with it", f.batch)
	}
	return errors.Join(a.takeWay(l, b, f, r), a.printSetAside(r, f, o))
}

// survey counts what can be read of a batch and writes it to w, which may be nil.
func (a *app) survey(l *wal.Log, b record.Batch, r *setAsideReport, w *bufio.Writer) error {
	r.Salvaged, r.Damage = 0, []string{}
	sum := record.NewHasher()
	for block, err := range l.Salvage(r.Lane, b.Seq) {
		if err != nil {
			if !errors.Is(err, wal.ErrDamaged) {
				return err
			}
			r.Damage = append(r.Damage, err.Error())
			continue
		}
		sum.Add(block)
		r.Salvaged += uint64(block.Len())
		if w != nil {
			if err := writeRecords(w, block); err != nil {
				return err
			}
		}
	}
	if len(r.Damage) == 0 && (sum.Sum() != b.Digest || sum.Records() != b.Records) {
		r.Damage = append(r.Damage, fmt.Sprintf("lane %s batch %d: the records do not have the digest of the footer", r.Lane, b.Seq))
	}
	return nil
}

// takeWay does what the flags say.
func (a *app) takeWay(l *wal.Log, b record.Batch, f setAsideFlags, r *setAsideReport) error {
	switch {
	case f.replay:
		r.Way = "replay"
		for _, next := range l.Batches(r.Lane) {
			if next.Seq >= b.Seq {
				r.Batches++
				r.Pending += next.Records
			}
		}
		if f.dryRun {
			return nil
		}
		if err := l.Void(r.Lane, b.Seq); err != nil {
			return &stateError{err}
		}
	case f.loss:
		r.Way, r.File = "give up", f.salvage
		if f.dryRun {
			return nil
		}
		if err := a.salvage(l, b, f.salvage, r); err != nil {
			return err
		}
		if err := committer.GiveUp(l, r.Lane, b.Seq); err != nil {
			return &stateError{err}
		}
	default:
		return nil
	}
	r.Done = true
	return nil
}

// salvage writes what can be read of a batch to a new file, durably.
func (a *app) salvage(l *wal.Log, b record.Batch, name string, r *setAsideReport) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return usagef("--salvage %s: this file is there already: name a new one", name)
	}
	if err != nil {
		return usagef("--salvage: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	err = a.survey(l, b, r, w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("salvage to %s: %w; nothing was given up", name, err)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("salvage to %s: %w; nothing was given up", name, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("salvage to %s: %w; nothing was given up", name, err)
	}
	return nil
}

// errNoWay says that nothing was done since the flags do not say what.
var errNoWay = errors.New("nothing was changed")

func (a *app) printSetAside(r *setAsideReport, f setAsideFlags, o *output) error {
	var err error
	if r.Way == "" && !f.dryRun {
		err = &usageError{errNoWay}
	}
	if a.json {
		return errors.Join(a.printJSON(r), err)
	}
	for _, d := range r.Damage {
		fmt.Fprintln(a.out, d)
	}
	fmt.Fprintf(a.out, "batch %d of lane %s, checkpoint %d: %s, of which %s can be read\n",
		r.Batch, r.Lane, r.Checkpoint, count(r.Records, "record"), group(r.Salvaged))
	verb := map[bool]string{true: "", false: "would be: "}[r.Done]
	switch r.Way {
	case "replay":
		fmt.Fprintf(a.out, "%s%s with %s taken out of the log; the next run reads the source again for them. Nothing is lost, if it can be read again\n",
			verb, countOf(uint64(r.Batches), "batch", "batches"), count(r.Pending, "record"))
	case "give up":
		fmt.Fprintf(a.out, "%sbatch %d given up: %s will never be in the store, except what you bring in from %s; what follows goes on\n",
			verb, r.Batch, count(r.Records, "record"), r.File)
	default:
		fmt.Fprintf(a.out, "two ways out:\n"+
			"  walsink verify --state %[1]s --set-aside %[2]s --replay\n      loses nothing, if the source can be read again\n"+
			"  walsink verify --state %[1]s --set-aside %[2]s --accept-loss --salvage FILE\n      gives the batch up for ever: for a source that cannot\n",
			shellWord(o.state), shellWord(f.batch))
	}
	return err
}
