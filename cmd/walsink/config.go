package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/wal"
)

// An output is one store that the records of a job go to, with a log and a ledger of
// its own.
type output struct {
	name string
	place
	start   string
	log     logFlags
	flush   flushFlags
	options []setting // beside those in the query of DST
	origins origins

	target target // zero if DST is not known
}

// register makes a flag of everything that an output has but its DST.
func (o *output) register(fs *pflag.FlagSet) {
	o.place.register(fs)
	fs.StringVar(&o.start, "start", "", "where an output that is `new` to the job begins: beginning or now")
	o.log.register(fs)
	o.flush.register(fs)
}

// Groups of flags. A command takes those that it needs; the configuration file may
// have all.
var (
	placeKeys = []string{"to", "state", "id"}
	logKeys   = []string{"max-bytes", "generation-size", "retain"}
	flushKeys = []string{"flush-bytes", "flush-age", "max-attempts", "dead-letters", "dead-limit", "accept-duplicates", "accept-loss"}
)

// A jobFlags is the part of a command line that says which job a command is about.
type jobFlags struct {
	job    job
	every  output // what holds for each output that does not say otherwise
	to     []string
	config string
	only   []string
	all    *pflag.FlagSet // every key, with or without a flag of the command
}

// register adds --config, --output and the flags of keys to a command; no keys means
// all there are. what says what the command does with DST.
func (f *jobFlags) register(cmd *cobra.Command, what string, keys ...string) {
	f.all = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.all.StringArrayVar(&f.to, "to", nil, "[NAME=]`DST`, the store "+what+"; may be repeated")
	f.job.register(f.all)
	f.every.register(f.all)
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", "", "YAML `file` with everything that flags say; flags go before it")
	f.all.VisitAll(func(flag *pflag.Flag) {
		if keys == nil || slices.Contains(keys, flag.Name) {
			fs.AddFlag(flag)
		}
	})
	if keys != nil {
		fs.StringArrayVar(&f.only, "output", nil, "`name` of an output, where there are several; default all")
	}
}

// load joins command line and configuration file. Every value of the job is checked,
// and every DST parsed; nothing is opened. Outputs has at least one, which lacks a
// target if no DST was given.
func (f *jobFlags) load() (*job, error) {
	doc := document{}
	if f.config != "" {
		var err error
		if doc, err = readConfig(f.config, f.all, entryFlags()); err != nil {
			return nil, err
		}
	}
	f.job.origins, f.every.origins = origins{file: f.config}, origins{file: f.config}
	for _, s := range doc.settings {
		flag := f.all.Lookup(s.key)
		if flag.Changed {
			continue
		}
		if err := s.set(flag); err != nil {
			return nil, err
		}
		f.job.origins.add(s)
		f.every.origins.add(s)
	}
	if err := f.addOutputs(doc); err != nil {
		return nil, err
	}
	j := &f.job
	if err := j.check(); err != nil {
		return nil, err
	}
	for _, o := range j.outputs {
		if err := o.resolve(len(j.outputs) > 1 || len(doc.outputs) > 0); err != nil {
			return nil, err
		}
	}
	return j, firstErr(j.distinct(), j.pick(f.only))
}

// addOutputs makes the outputs: those of --to, else those of the file, else one
// without DST.
func (f *jobFlags) addOutputs(doc document) error {
	toFlag := f.all.Lookup("to")
	entries := doc.outputs
	switch {
	case toFlag.Changed:
		entries = nil
	case len(entries) > 0 && len(f.to) > 0:
		return usagef("%s: to and outputs say the same: keep one of them", doc.path)
	}
	for _, to := range f.to {
		name, dst := splitName(to)
		o, _ := f.newOutput()
		o.name, o.to = name, dst
		f.job.outputs = append(f.job.outputs, o)
	}
	for _, e := range entries {
		o, fs := f.newOutput()
		for _, s := range e.settings {
			if flag := f.all.Lookup(s.key); flag != nil && flag.Changed && s.key != "to" {
				continue
			}
			if err := s.set(fs.Lookup(s.key)); err != nil {
				return err
			}
			o.origins.add(s)
		}
		o.options = e.options
		if o.to == "" {
			return usagef("%s:%d: outputs: to is missing: the store to write to", doc.path, e.line)
		}
		f.job.outputs = append(f.job.outputs, o)
	}
	if len(f.job.outputs) == 0 {
		o, _ := f.newOutput()
		f.job.outputs = append(f.job.outputs, o)
	}
	return nil
}

// newOutput returns a copy of what holds for each output, and the flags that change it.
func (f *jobFlags) newOutput() (*output, *pflag.FlagSet) {
	o := new(output)
	fs := o.entry()
	*o = f.every
	o.origins = f.every.origins.clone()
	return o, fs
}

// entry is the flags of everything that an entry of outputs may have but options.
func (o *output) entry() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.StringVar(&o.name, "name", "", "what messages and --output call the output")
	fs.StringVar(&o.to, "to", "", "`DST`, the store to write to")
	o.register(fs)
	return fs
}

func entryFlags() *pflag.FlagSet { return new(output).entry() }

// splitName takes NAME off NAME=DST. A scheme has no '='.
func splitName(to string) (name, dst string) {
	before, after, ok := strings.Cut(to, "=")
	if !ok || strings.ContainsAny(before, ":?/") {
		return "", to
	}
	return before, after
}

// resolve checks the values of the output, parses DST, if there is one, and fills in
// the defaults it gives. One of several has the state directory DIR/NAME, so has one in
// the list of a file.
func (o *output) resolve(several bool) error {
	if err := firstErr(o.log.check(o.origins), o.flush.check(o.origins), o.checkStart()); err != nil {
		return err
	}
	if o.to == "" {
		return nil
	}
	t, err := parseTarget(o.to, o.options...)
	if err != nil {
		return o.locateDST(err)
	}
	o.target = t
	o.name = cmp.Or(o.name, t.scheme)
	o.id = cmp.Or(o.id, t.defaultID())
	if err := (sinks.LaneID{Sink: o.id, Lane: "x"}).Validate(); err != nil {
		return o.origins.locate("id", &usageError{err})
	}
	if err := (sinks.LaneID{Sink: o.name, Lane: "x"}).Validate(); err != nil {
		return o.origins.bad("name", o.name, "want letters, digits, '.', '_' and '-'")
	}
	switch {
	case o.state == "":
		o.state = filepath.Join(".walsink", t.stateName())
	case several && !o.origins.own["state"]:
		if holdsLog(o.state) {
			return o.origins.bad("state", o.state, "it is the log of one output, and here are several: "+
				"name another directory, or move what is in it to "+filepath.Join(o.state, o.name)+" if it is that of output "+o.name)
		}
		o.state = filepath.Join(o.state, o.name)
	}
	return nil
}

// locateDST puts where an option or DST is said before an error about it.
func (o *output) locateDST(err error) error {
	to := o.origins.from["to"]
	text := to.hide(err.Error())
	for _, s := range o.options {
		text = s.hide(text)
	}
	e, ok := errors.AsType[*optionError](err)
	for _, s := range o.options {
		if ok && s.key == e.key {
			return usagef("%s:%d: options: %s: %s", s.file, s.line, s.key, s.hide(e.reason))
		}
	}
	if to.file == "" {
		return usagef("--to: %s", text)
	}
	return usagef("%s:%d: to: %s", to.file, to.line, text)
}

// holdsLog reports whether the directory is that of a log.
func holdsLog(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0 && wal.CheckDir(dir) == nil
}

func (o *output) checkStart() error {
	if _, ok := starts[o.start]; ok {
		return nil
	}
	return o.origins.bad("start", fmt.Sprintf("%q", o.start), "want beginning or now")
}

// starts are the words of --start.
var starts = map[string]pipeline.Start{"": pipeline.StartUnsaid, "beginning": pipeline.StartBeginning, "now": pipeline.StartNow}

// distinct refuses two outputs that messages, logs or ledgers would confuse.
func (j *job) distinct() error {
	names, states, ids := map[string]bool{}, map[string]string{}, map[string]string{}
	for _, o := range j.outputs {
		if o.to == "" {
			continue
		}
		if names[o.name] {
			return o.bad("name", o.name, "two outputs are called so; name them apart, with --to NAME=DST or name: in the file")
		}
		names[o.name] = true
		ledger := o.target.scheme
		if ledger == "file" {
			ledger += ":" + o.target.where // the ledger is in the directory
		}
		if other, ok := ids[ledger+" "+o.id]; ok {
			return o.bad("id", o.id, "outputs "+other+" and "+o.name+" may share a ledger; give each an id of its own")
		}
		ids[ledger+" "+o.id] = o.name
		if other, ok := states[filepath.Clean(o.state)]; ok {
			return o.bad("state", o.state, "outputs "+other+" and "+o.name+" would share it; give each a directory of its own")
		}
		states[filepath.Clean(o.state)] = o.name
	}
	return nil
}

// bad is the error of a value that may be a default: then DST is where it comes from.
func (o *output) bad(key, value, want string) error {
	if _, ok := o.origins.from[key]; ok {
		return o.origins.bad(key, value, want)
	}
	return o.origins.locate("to", usagef("%s %s: %s", key, value, want))
}

// pick keeps the outputs of these names; all if there are none.
func (j *job) pick(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var kept []*output
	var known []string
	for _, o := range j.outputs {
		known = append(known, o.name)
		if slices.Contains(names, o.name) {
			kept = append(kept, o)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return usagef("--output %s: there is no such output; there are %s", name, strings.Join(known, ", "))
		}
	}
	j.outputs = kept
	return nil
}

// needFrom refuses a job without a source.
func (j *job) needFrom() error {
	if len(j.from) > 0 {
		return nil
	}
	return j.origins.missing("from", "SRC", "where the records come from")
}

// needTo refuses outputs without DST.
func (j *job) needTo(what string) error {
	for _, o := range j.outputs {
		if o.to == "" {
			return o.origins.missing("to", "DST", what)
		}
	}
	return nil
}

// one returns the only output.
func (j *job) one() (*output, error) {
	if len(j.outputs) == 1 {
		return j.outputs[0], nil
	}
	var names []string
	for _, o := range j.outputs {
		names = append(names, o.name)
	}
	return nil, usagef("--output NAME is missing: which of %s", strings.Join(names, ", "))
}

// logger is that of an output: of several, lines name theirs.
func (j *job) logger(o *output, log *slog.Logger) *slog.Logger {
	if len(j.outputs) > 1 {
		return log.With("name", o.name)
	}
	return log
}

// label is what messages call the output.
func (j *job) label(o *output) string {
	if len(j.outputs) > 1 || o.to == "" {
		return o.name
	}
	return o.target.scheme + ":" + o.target.where
}
