package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/walsink/walsink"
)

// outputOptions are the options of an output.
func outputOptions(o *output, logger *slog.Logger) walsink.Options {
	opts := walsink.Options{Dir: o.state, ID: o.id, Log: o.log.options(), Flush: o.flush.options(), Logger: logger}
	n := newNagger(logger.With("output", o.id))
	opts.Flush.Observer.Retrying, opts.Flush.Observer.Flushing = n.retrying, n.flushing
	return opts
}

// locate adds the state directory to an error that is about it.
func (p *place) locate(err error) error {
	if c := classify(err); (c == codeState || c == codeInUse) && !strings.Contains(err.Error(), p.state) {
		return fmt.Errorf("state directory %s: %w", p.state, err)
	}
	return err
}
