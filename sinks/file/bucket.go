package file

import (
	"errors"
	"fmt"
)

// maxBucket is the longest bucket name, in bytes. With it, a name's length fits
// the one byte that it has in the wire form.
const maxBucket = 128

// checkBucket refuses every name that is not, on every system, the plain name of
// one visible directory. It takes no memory unless it fails.
func checkBucket[T string | []byte](name T) error {
	switch {
	case len(name) == 0:
		return errors.New("bucket name is empty")
	case len(name) > maxBucket:
		return fmt.Errorf("bucket name of %d bytes, the limit is %d", len(name), maxBucket)
	}
	for i := range len(name) {
		if !bucketChar(name[i]) {
			return fmt.Errorf("bucket name %q: want letters, digits, '.', '_', '-' or '='", string(name))
		}
	}
	switch {
	case name[0] == '.' || name[len(name)-1] == '.':
		return fmt.Errorf("bucket name %q: a dot in front or at the end", string(name))
	case reserved(name):
		return fmt.Errorf("bucket name %q: the name of a device on some systems", string(name))
	}
	return nil
}

func bucketChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-' || c == '='
}

// reserved reports whether name, up to its first dot, is a device on Windows.
func reserved[T string | []byte](name T) bool {
	stem := [4]byte{}
	n := 0
	for n < len(name) && name[n] != '.' {
		if n == len(stem) {
			return false
		}
		stem[n] = name[n] &^ 0x20 // upper case; digits lose a bit
		n++
	}
	switch string(stem[:3]) {
	case "CON", "PRN", "AUX", "NUL":
		return n == 3
	case "COM", "LPT":
		return n == 4 && '0' <= name[3] && name[3] <= '9'
	}
	return false
}

// The wire form of a record with a bucket:
//
//	+--------+-------------+----------------------+
//	| length | bucket name | bytes of the record  |
//	| u8     | 1 to 128    | to the end           |
//	+--------+-------------+----------------------+

// appendBucket appends the part of the wire form before the record.
func appendBucket(dst []byte, name string) ([]byte, error) {
	if err := checkBucket(name); err != nil {
		return dst, err
	}
	return append(append(dst, byte(len(name))), name...), nil
}

// splitBucket takes a wire form apart. It does not check the name's characters.
func splitBucket(wire []byte) (name, rec []byte, err error) {
	if len(wire) == 0 || wire[0] == 0 || wire[0] > maxBucket || len(wire) < 1+int(wire[0]) {
		return nil, nil, errors.New("record has no bucket; encode it with file.InBucket or a file.Encoder")
	}
	n := 1 + int(wire[0])
	return wire[1:n], wire[n:], nil
}
