package main

import (
	"errors"
	"fmt"
	"sync"
)

// eachOutput takes something of every output, of all at the same time, and shows it in
// their order: with --json as it is or, of several outputs, as one object by name. An
// output that fails keeps no other from being shown.
func eachOutput[T any](a *app, j *job, take func(*output) (T, error), show func(*output, T) error) error {
	taken, errs := make([]T, len(j.outputs)), make([]error, len(j.outputs))
	var wg sync.WaitGroup
	for i, o := range j.outputs {
		wg.Go(func() { taken[i], errs[i] = take(o) })
	}
	wg.Wait()
	byName := map[string]T{}
	for i, o := range j.outputs {
		switch {
		case errs[i] != nil && len(j.outputs) > 1:
			errs[i] = fmt.Errorf("output %s: %w", o.name, errs[i])
		case errs[i] != nil:
		case a.json:
			byName[o.name] = taken[i]
		default:
			errs[i] = show(o, taken[i])
		}
	}
	err := errors.Join(errs...)
	switch {
	case !a.json || len(byName) == 0:
		return err
	case len(j.outputs) == 1:
		return a.printJSON(byName[j.outputs[0].name])
	}
	return errors.Join(err, a.printJSON(byName))
}

// heading is printed before what is shown of one of several outputs.
func (a *app) heading(j *job, o *output) {
	if len(j.outputs) > 1 {
		fmt.Fprintf(a.out, "output %s\n", o.name)
	}
}
