package redis

// A run is records of one command each that follow each other in a chunk.
type run struct {
	op    string // what it is in the script; empty if there is none
	argc  int    // of its commands, the name included
	place int    // of the number of its records in the pack; that of its long items is next
	n     int    // records
	long  int    // items of records that are long
}

// A series is commands in a row that have the same name, number of arguments, and
// fields: every second argument from the third on. Any two commands SET key value are
// of one.
type series struct {
	args []string // of the first one; alias its record
	n    int      // those behind it, up to alikeAfter-1
}

// alikeAfter is how many commands of a series make it worth while to send once what
// they have in common.
const alikeAfter = 8

func (s *series) reset() {
	clear(s.args)
	s.args, s.n = s.args[:0], 0
}

// next takes the next command and returns what its run is in the script.
func (s *series) next(args []string) string {
	set := len(args) == 3 && args[0] == "SET"
	switch {
	case len(args) != len(s.args) || args[0] != s.args[0] || !set && !s.sameFields(args):
		s.reset()
		s.args = append(s.args, args...)
	case s.n < alikeAfter-1:
		s.n++
	case set:
		return "S"
	default:
		switch len(args) { // the script has these
		case 3, 4, 6, 8, 10, 12:
			return "H"
		}
	}
	return "C"
}

func (s *series) sameFields(args []string) bool {
	for i := 2; i < len(args); i += 2 {
		if args[i] != s.args[i] {
			return false
		}
	}
	return true
}

// single adds a record of one command to the run at the end of the chunk, or begins
// another one.
func (c *cutter) single() {
	args := c.view.args
	op := c.series.next(args)
	if c.run.op != op || c.run.argc != len(args) {
		c.beginRun(op, args)
	}
	c.run.n++
	switch op {
	case "C":
		c.run.long += c.add(args...)
	case "S":
		c.run.long += c.add(args[1:]...)
	default:
		for i := 1; i < len(args); i += 2 {
			c.run.long += c.add(args[i])
		}
	}
}

// beginRun begins a run of commands like this one.
func (c *cutter) beginRun(op string, args []string) {
	c.seal()
	c.open.items.op(op)
	c.run = run{op: op, argc: len(args), place: c.number(0)}
	c.number(0)
	if op != "S" {
		c.number(len(args))
	}
	if op == "H" {
		for i := 0; i < len(args); i += 2 {
			c.add(args[i])
		}
	}
}

// seal ends the run.
func (c *cutter) seal() {
	if c.run.op != "" {
		c.open.items.set(c.run.place, c.run.n)
		c.open.items.set(c.run.place+numberSize, c.run.long)
	}
	c.run = run{}
}

func (c *cutter) multi() {
	c.seal()
	c.open.items.op("M")
	c.number(len(c.view.ends))
	for _, args := range c.view.commands() {
		c.number(len(args))
		c.add(args...)
	}
}
