package pipeline

import (
	"errors"
	"fmt"

	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/sinks"
)

// A Guarantee says how often a record of the sources shows in the outputs when
// processes and machines crash. Larger is stronger.
type Guarantee uint8

const (
	// AtMostOnce: records read and not yet in a checkpoint may be lost.
	AtMostOnce Guarantee = iota + 1
	// AtLeastOnce: nothing is lost, records may come again.
	AtLeastOnce
	// ExactlyOnce: each record of a completed checkpoint, once.
	ExactlyOnce
)

// String returns the name of the guarantee as it is printed to users.
func (g Guarantee) String() string {
	switch g {
	case AtMostOnce:
		return "at-most-once"
	case AtLeastOnce:
		return "at-least-once"
	case ExactlyOnce:
		return "exactly-once"
	}
	return fmt.Sprintf("guarantee(%d)", uint8(g))
}

// ErrGuarantee says that the parts give less than was required.
var ErrGuarantee = errors.New("the pipeline cannot give what is required")

// A Promise is the guarantee of a whole pipeline: that of its weakest part.
type Promise struct {
	Guarantee Guarantee
	// Part is the weakest part, "source orders" or "output files", and Reason why
	// it gives no more. With ExactlyOnce there is no such part.
	Part, Reason string
}

// String returns the guarantee with its reason.
func (p Promise) String() string {
	if p.Part == "" {
		return fmt.Sprintf("%v (%s)", p.Guarantee, p.Reason)
	}
	return fmt.Sprintf("%v (%s: %s)", p.Guarantee, p.Part, p.Reason)
}

// weaken lowers the promise if the part gives less. The first of equally weak
// parts is named.
func (p *Promise) weaken(g Guarantee, part, reason string) {
	if g < p.Guarantee {
		*p = Promise{Guarantee: g, Part: part, Reason: reason}
	}
}

func (p *Promise) source(in Input) {
	r, ok := in.Source.(Replayer)
	if !ok {
		return
	}
	if ok, reason := r.Replayable(); !ok {
		p.weaken(AtMostOnce, "source "+in.Name, reason)
	}
}

func (p *Promise) output(name string, out Output) {
	g, reason := sinks.AtLeastOnce, "it does not say what a replayed flush does"
	if d, ok := out.(Guarantor); ok {
		g, reason = d.Guarantee()
	}
	switch g {
	case sinks.ExactlyOnce:
	case sinks.Idempotent:
		p.weaken(AtLeastOnce, "output "+name, "idempotent: "+reason)
	default:
		p.weaken(AtLeastOnce, "output "+name, reason)
	}
}

// findings lowers the promise by what probing found.
func (p *Promise) findings(name string, all []sinks.Finding) {
	for _, f := range all {
		reason := f.Subject + ": " + f.Found
		if f.Advice != "" {
			reason += "; " + f.Advice
		}
		switch {
		case f.Refuse:
			p.weaken(AtMostOnce, "output "+name, reason)
		case f.Guarantee < sinks.ExactlyOnce:
			p.weaken(AtLeastOnce, "output "+name, reason)
		}
	}
}

// promise computes the guarantee of the pipeline with these outputs; without any it is
// what is known before they are opened.
func (p *Pipeline) promise(outs []Output) Promise {
	g := Promise{Guarantee: ExactlyOnce, Reason: "every source can be read again, every output takes records and mark in one atomic step"}
	for _, in := range p.Sources {
		g.source(in)
	}
	if p.Mode == checkpoint.AtLeastOnce && p.stateful() && len(p.Sources) > 1 {
		g.weaken(AtLeastOnce, "mode", "inputs are not aligned")
	}
	for i, out := range outs {
		g.output(p.Outputs[i].Name, out)
	}
	for _, s := range p.Outputs {
		g.findings(s.Name, s.Findings)
	}
	return g
}

func (p *Pipeline) require(g Promise) error {
	if g.Guarantee >= p.Require {
		return nil
	}
	return fmt.Errorf("%w: required %v, found %v; change that part or require less", ErrGuarantee, p.Require, g)
}
