package redis

// A run is records of one command each that follow each other in a chunk.
type run struct {
	op    string // what it is in the script; empty if there is none
	argc  int    // of its commands, the name included
	place int    // of the number of its records in the pack
	n     int    // that number
}

// A likeness says what a series of commands of one name and length has in common.
type likeness struct {
	args  []string // of the first one; alias its record
	fixed []bool   // for each of them, whether all others have it too
	n     int      // others
}

// sameAfter is how many commands of one kind in a row make it worth while to send
// once what they have in common.
const sameAfter = 8

func (l *likeness) reset() {
	clear(l.args)
	l.args, l.fixed, l.n = l.args[:0], l.fixed[:0], 0
}

// next takes the next command. It reports whether it is like those before.
func (l *likeness) next(args []string) bool {
	if len(args) != len(l.args) || args[0] != l.args[0] {
		l.reset()
		l.args = append(l.args, args...)
		for range args {
			l.fixed = append(l.fixed, true)
		}
		return false
	}
	l.n++
	like := true
	for i, fixed := range l.fixed {
		if fixed && args[i] != l.args[i] {
			l.fixed[i], like = false, false
		}
	}
	return like
}

// single adds a record of one command to the run at the end of the chunk, or begins
// another one.
func (c *cutter) single() {
	args := c.view.args
	like := c.like.next(args)
	op := "T"
	switch {
	case c.like.n < sameAfter:
		op, like = "C", true
	case args[0] == "SET" && len(args) == 3:
		op, like = "S", true
	}
	if c.run.op != op || c.run.argc != len(args) || !like {
		c.beginRun(op, len(args))
	}
	c.run.n++
	switch op {
	case "C":
		c.add(args...)
	case "S":
		c.add(args[1:]...)
	default:
		for i, fixed := range c.like.fixed {
			if !fixed {
				c.add(args[i])
			}
		}
	}
}

// beginRun begins a run, of commands that are alike as far as c.like says.
func (c *cutter) beginRun(op string, argc int) {
	c.seal()
	c.add(op)
	c.run = run{op: op, argc: argc, place: c.open.items.number(0)}
	if op != "S" {
		c.number(argc)
	}
	if op != "T" {
		return
	}
	for i, fixed := range c.like.fixed {
		if fixed {
			c.add(c.like.args[i])
		} else {
			c.open.items.flag(false)
		}
	}
}

// seal ends the run.
func (c *cutter) seal() {
	if c.run.op != "" {
		c.open.items.set(c.run.place, c.run.n)
	}
	c.run = run{}
}

func (c *cutter) multi() {
	c.seal()
	c.add("M")
	c.number(len(c.view.ends))
	for _, args := range c.view.commands() {
		c.number(len(args))
		c.add(args...)
	}
}
