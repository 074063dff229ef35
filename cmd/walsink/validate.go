package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) validateCommand() *cobra.Command {
	var f jobFlags
	var show bool
	cmd := &cobra.Command{
		Use:   "validate --config FILE",
		Short: "Check a configuration file, without running it",
		Long: "Validate says of a configuration file, and of flags, what run would refuse before it opens anything: unknown\n" +
			"keys, values that cannot be meant so, variables that the environment lacks. What stores and sources are really\n" +
			"like it does not look at.\n\n" + codeHelp(),
		Example: "  walsink validate --config walsink.yaml --print",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			j, err := f.load()
			if err != nil {
				return err
			}
			return a.validate(j, &f, show)
		},
	}
	f.register(cmd, "to write to")
	cmd.Flags().BoolVar(&show, "print", false, "print everything that is in effect, defaults included, without passwords")
	return cmd
}

func (a *app) validate(j *job, f *jobFlags, show bool) error {
	if err := firstErr(j.needFrom(), j.needTo("where the records go"), j.eatsItself()); err != nil {
		return err
	}
	if _, _, err := openSources(j, newLogger(io.Discard)); err != nil {
		return err
	}
	if show {
		return a.printJob(j, f.all)
	}
	a.note(fmt.Sprintf("valid: %s, %s", count(uint64(len(j.from)), "source"), count(uint64(len(j.outputs)), "output")))
	return nil
}

// printJob writes a job as a configuration file that says all of it.
func (a *app) printJob(j *job, all *pflag.FlagSet) error {
	own := entryFlags()
	doc := yaml.MapSlice{}
	all.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "to" && own.Lookup(flag.Name) == nil {
			doc = append(doc, item(flag))
		}
	})
	var outputs []yaml.MapSlice
	for _, o := range j.outputs {
		outputs = append(outputs, o.entryOf())
	}
	text, err := yaml.MarshalWithOptions(append(doc, yaml.MapItem{Key: "outputs", Value: outputs}), yaml.IndentSequence(true))
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// entryOf is the output as an item of outputs.
func (o *output) entryOf() yaml.MapSlice {
	e := yaml.MapSlice{{Key: "name", Value: o.name}, {Key: "to", Value: o.shownDST()}}
	if len(o.options) > 0 {
		options := yaml.MapSlice{}
		for _, s := range o.options {
			options = append(options, yaml.MapItem{Key: s.key, Value: o.shownOption(s)})
		}
		e = append(e, yaml.MapItem{Key: "options", Value: options})
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := new(output)
	c.register(fs)
	*c = *o
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.Value.String() != "" {
			e = append(e, item(flag))
		}
	})
	return e
}

// item is a key with its value in the type that YAML has for it.
func item(flag *pflag.Flag) yaml.MapItem {
	text := flag.Value.String()
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return yaml.MapItem{Key: flag.Name, Value: escapeAll(list.GetSlice())}
	}
	switch flag.Value.Type() {
	case "bool":
		return yaml.MapItem{Key: flag.Name, Value: text == "true"}
	case "int", "uint64":
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return yaml.MapItem{Key: flag.Name, Value: n}
		}
	}
	return yaml.MapItem{Key: flag.Name, Value: escape(text)}
}

// escape writes a value so that nothing in it is expanded.
func escape(v string) string { return strings.ReplaceAll(v, "$", "$$") }

func escapeAll(list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = escape(v)
	}
	return out
}

// secretName is the name of an option whose value is nobody's business.
var secretName = regexp.MustCompile(`(?i)pass|secret|token|credential`)

const redacted = "REDACTED"

// shownDST is DST without a password. What came out of the environment is shown as the
// name it has there.
func (o *output) shownDST() string {
	if s, ok := o.origins.from["to"]; ok && s.expanded {
		return redactDST(s.shown())
	}
	return escape(redactDST(o.to))
}

// redactDST is DST with its passwords and other secrets hidden, and the user left.
func redactDST(dst string) string {
	where, query, hasQuery := strings.Cut(dst, "?")
	if before, rest, ok := strings.Cut(where, "//"); ok {
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			user, _, hasPassword := strings.Cut(rest[:i], ":")
			if hasPassword {
				where = before + "//" + user + ":" + redacted + rest[i:]
			}
		}
	}
	if !hasQuery {
		return where
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if name, _, ok := strings.Cut(pair, "="); ok && secretName.MatchString(name) {
			pairs[i] = name + "=" + redacted
		}
	}
	return where + "?" + strings.Join(pairs, "&")
}

func (o *output) shownOption(s setting) string {
	switch {
	case secretName.MatchString(s.key) && (!s.expanded || strings.Contains(s.shown(), ":-")):
		return redacted
	case s.expanded:
		return s.shown()
	}
	return escape(s.shown())
}
