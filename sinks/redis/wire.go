package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/walsink/walsink/record"
)

// Limits of a record.
const (
	// MaxCommands is the most commands that one record may hold.
	MaxCommands = 1000
	// MaxArgs is the most arguments, the name included, that a command may have: a
	// script hands them over on a stack of 8000.
	MaxArgs = 4000
)

// Format is the fingerprint of the wire form that AppendCommands writes.
const Format = "redis/1"

const wireVersion = 1

// Errors of the encoders. Details follow after the text; match with errors.Is.
var (
	// ErrCommand says that a command is not one that a record may hold.
	ErrCommand = errors.New("command refused")
	// ErrRecord says that bytes are not a record of this package.
	ErrRecord = errors.New("not a redis record")
)

// A Command is a write command: its name and its arguments. Strings are binary
// safe.
type Command []string

// AppendCommand appends the record of one command to dst. See [AppendCommands].
func AppendCommand(dst []byte, args ...string) ([]byte, error) {
	return appendRecord(dst, args)
}

func appendRecord[T string | []byte](dst []byte, args []T) ([]byte, error) {
	out, err := appendArgs(append(dst, wireVersion, 1), args)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendCommands appends one record to dst and returns the longer slice. The
// commands of a record are applied one after the other. A name is written in
// capitals. It fails with ErrCommand, and returns dst as it was, for a command
// that is unknown, does not write, is not allowed in a script or changes the
// database that later commands meet; for too few arguments to hold the keys; and
// beyond the limits.
func AppendCommands(dst []byte, cmds ...Command) ([]byte, error) {
	if len(cmds) == 0 || len(cmds) > MaxCommands {
		return dst, fmt.Errorf("%w: %d commands in a record, want 1 to %d", ErrCommand, len(cmds), MaxCommands)
	}
	out := append(dst, wireVersion)
	out = binary.AppendUvarint(out, uint64(len(cmds)))
	var err error
	for _, cmd := range cmds {
		if out, err = appendArgs(out, cmd); err != nil {
			return dst, err
		}
	}
	return out, nil
}

// appendArgs appends one command.
func appendArgs[T string | []byte](dst []byte, args []T) ([]byte, error) {
	if len(args) == 0 || len(args) > MaxArgs {
		return nil, fmt.Errorf("%w: %d arguments, want 1 to %d", ErrCommand, len(args), MaxArgs)
	}
	dst = binary.AppendUvarint(dst, uint64(len(args)))
	start, size := len(dst), 0
	for i, arg := range args {
		if size += len(arg); size > record.MaxRecord/2 {
			return nil, fmt.Errorf("%w: arguments of more than %d bytes", ErrCommand, record.MaxRecord/2)
		}
		dst = binary.AppendUvarint(dst, uint64(len(arg)))
		dst = append(dst, arg...)
		if i == 0 {
			start = len(dst) - len(arg)
			upper(dst[start:])
		}
	}
	name := dst[start : start+len(args[0])]
	spec, ok := specs()[string(name)]
	if !ok {
		var err error
		if spec, err = lookup(string(name)); err != nil {
			return nil, err
		}
	}
	count := ""
	if n := spec.numkeys; n > 0 && n < len(args) {
		count = string(args[n])
	}
	if !spec.fits(len(args), count) {
		return nil, spec.misfit(string(name), len(args))
	}
	return dst, nil
}

func upper(b []byte) {
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
}

// A view decodes a record. The record, version 1:
//
//	version u8 = 1 | commands uvarint | each: arguments uvarint | each: length uvarint, bytes
//
// There is one encoding of a record: numbers have no needless bytes and names are
// in capitals.
type view struct {
	args []string // of all commands, one after the other; alias the record
	ends []int    // of each command in args
	spec []*keySpec

	last     string // name that was looked up last, and what was found
	lastSpec *keySpec
}

// forget lets go of the record.
func (v *view) forget() {
	clear(v.args)
	v.last, v.lastSpec = "", nil
}

// parse decodes a record. It fails for anything that AppendCommands would not have
// written.
func (v *view) parse(rec string) error {
	v.args, v.ends, v.spec = v.args[:0], v.ends[:0], v.spec[:0]
	if rec == "" || rec[0] != wireVersion {
		return fmt.Errorf("%w: version", ErrRecord)
	}
	n, rest, ok := uvarint(rec[1:], MaxCommands)
	if !ok || n == 0 {
		return fmt.Errorf("%w: number of commands", ErrRecord)
	}
	for range n {
		var err error
		if rest, err = v.command(rest); err != nil {
			return err
		}
	}
	if rest != "" {
		return fmt.Errorf("%w: %d bytes behind it", ErrRecord, len(rest))
	}
	return nil
}

// command decodes the command at the start of b and returns what is behind it.
func (v *view) command(b string) (string, error) {
	argc, b, ok := uvarint(b, MaxArgs)
	if !ok || argc == 0 {
		return "", fmt.Errorf("%w: number of arguments", ErrRecord)
	}
	start := len(v.args)
	for range argc {
		var n int
		if b != "" && b[0] < 0x80 { // as nearly all are
			n, b = int(b[0]), b[1:]
		} else if n, b, ok = uvarint(b, len(b)); !ok {
			return "", fmt.Errorf("%w: length of an argument", ErrRecord)
		}
		if n > len(b) {
			return "", fmt.Errorf("%w: length of an argument", ErrRecord)
		}
		v.args = append(v.args, b[:n])
		b = b[n:]
	}
	v.ends = append(v.ends, len(v.args))
	return b, v.allow(v.args[start:])
}

// allow checks a command by its name and number of arguments.
func (v *view) allow(args []string) (err error) {
	if args[0] != v.last || v.last == "" {
		spec, err := lookup(args[0])
		if err != nil {
			return err
		}
		v.last, v.lastSpec = args[0], spec
	}
	count := ""
	if n := v.lastSpec.numkeys; n > 0 && n < len(args) {
		count = args[n]
	}
	if !v.lastSpec.fits(len(args), count) {
		return v.lastSpec.misfit(args[0], len(args))
	}
	v.spec = append(v.spec, v.lastSpec)
	return nil
}

// commands ranges over the commands of the record parsed last.
func (v *view) commands() iter.Seq2[*keySpec, []string] {
	return func(yield func(*keySpec, []string) bool) {
		start := 0
		for i, end := range v.ends {
			if !yield(v.spec[i], v.args[start:end]) {
				return
			}
			start = end
		}
	}
}

// uvarint reads a number up to limit in its shortest form.
func uvarint(b string, limit int) (n int, rest string, ok bool) {
	for i := range min(len(b), 5) {
		c := b[i]
		n |= int(c&0x7f) << (7 * i)
		if c < 0x80 {
			return n, b[i+1:], n <= limit && (i == 0 || c != 0)
		}
	}
	return 0, "", false
}
