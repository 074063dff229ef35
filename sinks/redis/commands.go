package redis

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A keySpec says which arguments of a command are keys.
type keySpec struct {
	first, last, step int  // argument positions; last counts from the end if negative
	numkeys           int  // position of a count that keys follow; 0 if none
	store             bool // a word STORE is followed by one more key
	min               int  // fewest arguments, the name included
}

var (
	oneKey   = &keySpec{first: 1, last: 1, step: 1, min: 2}
	twoKeys  = &keySpec{first: 1, last: 2, step: 1, min: 3}
	allKeys  = &keySpec{first: 1, last: -1, step: 1, min: 2}
	pairKeys = &keySpec{first: 1, last: -1, step: 2, min: 3}
	trioKeys = &keySpec{first: 1, last: -1, step: 3, min: 4}
	destKeys = &keySpec{first: 1, last: 1, step: 1, numkeys: 2, min: 4}
)

// names lists the write commands that a record may hold, by where their keys are.
// Commands that block, that administer the server, that run scripts, and that
// empty or switch the database are left out on purpose: they would stop the
// server, or take the ledger away under the flush.
var names = [...]struct {
	names string
	spec  *keySpec
}{
	{`SET SETNX SETEX PSETEX GETSET GETDEL GETEX APPEND INCR DECR INCRBY DECRBY INCRBYFLOAT SETRANGE SETBIT BITFIELD
HSET HSETNX HMSET HINCRBY HINCRBYFLOAT HDEL HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST HGETDEL HGETEX HSETEX
LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LINSERT LREM LTRIM SADD SREM SPOP
ZADD ZINCRBY ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREMRANGEBYLEX ZPOPMIN ZPOPMAX PFADD GEOADD
XADD XDEL XTRIM XACK XCLAIM XAUTOCLAIM XSETID XACKDEL XDELEX EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST RESTORE`, oneKey},
	{"RENAME RENAMENX RPOPLPUSH LMOVE SMOVE COPY GEOSEARCHSTORE ZRANGESTORE TS.CREATERULE TS.DELETERULE", twoKeys},
	{"DEL UNLINK PFMERGE SINTERSTORE SUNIONSTORE SDIFFSTORE", allKeys},
	{"MSET MSETNX", pairKeys},
	{"JSON.MSET TS.MADD", trioKeys},
	{"ZUNIONSTORE ZINTERSTORE ZDIFFSTORE CMS.MERGE TDIGEST.MERGE", destKeys},
	{"LMPOP ZMPOP", &keySpec{numkeys: 1, min: 4}},
	{"BITOP", &keySpec{first: 2, last: -1, step: 1, min: 4}},
	{"XGROUP", &keySpec{first: 2, last: 2, step: 1, min: 4}},
	{"SORT", &keySpec{first: 1, last: 1, step: 1, store: true, min: 4}},
}

var specs = sync.OnceValue(func() map[string]*keySpec {
	m := make(map[string]*keySpec)
	for _, group := range names {
		for name := range strings.FieldsSeq(group.names) {
			m[name] = group.spec
		}
	}
	return m
})

// lookup finds a command by its name in capitals. A command of a module, which
// has a dot in its name, is taken to have one key, in front; those of the search
// module have none and are refused.
func lookup(name string) (*keySpec, error) {
	if spec, ok := specs()[name]; ok {
		return spec, nil
	}
	lower := strings.ContainsFunc(name, func(r rune) bool { return 'a' <= r && r <= 'z' })
	if module, _, ok := strings.Cut(name, "."); ok && !lower && module != "" && module != "FT" {
		return oneKey, nil
	}
	return nil, fmt.Errorf("%w: %.40q is not a write command that can be part of a flush", ErrCommand, name)
}

// fits reports whether the keys of a command of argc arguments can all be there;
// count is the argument at s.numkeys, if there is one.
func (s *keySpec) fits(argc int, count string) bool {
	if argc < s.min || s.numkeys == 0 {
		return argc >= s.min
	}
	n, err := strconv.Atoi(count)
	return err == nil && n >= 1 && n <= argc-s.numkeys-1
}

// misfit is the error for a command that does not fit.
func (s *keySpec) misfit(name string, argc int) error {
	if argc < s.min {
		return fmt.Errorf("%w: %s with %d arguments, want %d or more", ErrCommand, name, argc-1, s.min-1)
	}
	return fmt.Errorf("%w: %s: number of keys", ErrCommand, name)
}

// keys ranges over the keys of a command that fits.
func (s *keySpec) keys(args []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		last := s.last
		if last < 0 {
			last += len(args)
		}
		for i := s.first; s.step > 0 && i <= last; i += s.step {
			if !yield(args[i]) {
				return
			}
		}
		for _, key := range s.more(args) {
			if !yield(key) {
				return
			}
		}
	}
}

// touches reports whether a key of a command that fits begins with prefix.
func (s *keySpec) touches(args []string, prefix string) bool {
	if s == oneKey { // as nearly all are
		return strings.HasPrefix(args[1], prefix)
	}
	for key := range s.keys(args) {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// more returns the keys that are not at fixed places.
func (s *keySpec) more(args []string) []string {
	if s.numkeys > 0 {
		n, _ := strconv.Atoi(args[s.numkeys]) // it fits
		return args[s.numkeys+1 : s.numkeys+1+n]
	}
	if s.store {
		i := slices.IndexFunc(args[:len(args)-1], func(a string) bool { return strings.EqualFold(a, "STORE") })
		if i >= 0 {
			return args[i+1 : i+2]
		}
	}
	return nil
}

// slotOf is the cluster slot of a key.
func slotOf(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
	}
	return crc % slots
}

// slots is the number of hash slots of a cluster.
const slots = 16384
