package file

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Options say what the files look like. The zero value is ready to use: plain
// NDJSON in one directory.
type Options struct {
	// Format is "ndjson" (the default), "csv" or "raw". Records of the first two must
	// end in a newline.
	Format string
	// Compress is "" for none, "gzip" or "zstd". A part is one complete stream. It may
	// change between runs.
	Compress string
	// Buckets says that each record names the sub-directory it goes to; see
	// [InBucket].
	Buckets bool
	// BucketField is the top-level field of a JSON record that an [Encoder] takes as
	// the bucket. It implies Buckets.
	BucketField string
	// MaxBuckets is the most buckets that one step may have; default 4096.
	MaxBuckets int
	// Header is the first line of each CSV part; none if empty.
	Header []string
	// MaxPartBytes cuts a part before it holds more record bytes than this, counted
	// before compression, if it holds a record. 0 means one part per bucket and step.
	MaxPartBytes int64
	// StepBytes is up to how many record bytes of small batches go into one step, and
	// so into one part. Default 64 MiB.
	StepBytes int64
	// Mode is the permission of parts, default 0644, and with the search bits added of
	// bucket directories. The umask does not matter. The hidden directory is 0700.
	Mode fs.FileMode
	// KeepAudit is how many audit rows are kept per lane; default 1000.
	KeepAudit int
}

// resolve checks o and fills in defaults.
func (o Options) resolve() (Options, error) {
	o.Buckets = o.Buckets || o.BucketField != ""
	setDefault(&o.Format, "ndjson")
	setDefault(&o.MaxBuckets, 4096)
	setDefault(&o.StepBytes, 64<<20)
	setDefault(&o.Mode, 0o644)
	setDefault(&o.KeepAudit, 1000)
	switch {
	case o.Format != "ndjson" && o.Format != "csv" && o.Format != "raw":
		return o, fmt.Errorf("format %q: want ndjson, csv or raw", o.Format)
	case o.Compress != "" && o.Compress != "gzip" && o.Compress != "zstd":
		return o, fmt.Errorf("compression %q: want gzip, zstd or nothing", o.Compress)
	case o.BucketField != "" && o.Format != "ndjson":
		return o, fmt.Errorf("bucket field %q: only ndjson records have fields, the format is %s", o.BucketField, o.Format)
	case len(o.Header) > 0 && o.Format != "csv":
		return o, fmt.Errorf("header: the format is %s, want csv", o.Format)
	case o.MaxBuckets < 0 || o.MaxPartBytes < 0 || o.StepBytes < 0 || o.KeepAudit < 0:
		return o, fmt.Errorf("options: a limit is negative")
	case o.Mode&^fs.ModePerm != 0 || o.Mode&0o600 != 0o600:
		return o, fmt.Errorf("mode %#o: want permission bits, with read and write for the owner", uint32(o.Mode))
	}
	return o, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// fingerprint names the wire form of a record. Compression is not part of it.
func (o Options) fingerprint() string {
	s := "file 1 " + o.Format
	if o.Buckets {
		s += " buckets"
	}
	if len(o.Header) > 0 {
		s += fmt.Sprintf(" header %08x", crc32.ChecksumIEEE([]byte(strings.Join(o.Header, "\x00"))))
	}
	return s
}

// suffix is the end of a part's name.
func (o Options) suffix() string {
	s := map[string]string{"ndjson": ".ndjson", "csv": ".csv", "raw": ".bin"}[o.Format]
	return s + map[string]string{"gzip": ".gz", "zstd": ".zst"}[o.Compress]
}

// dirMode is the permission of a bucket directory: who may read may search.
func (o Options) dirMode() fs.FileMode { return o.Mode | o.Mode&0o444>>2 }

// newCompressor returns nil for no compression. It starts no goroutine.
func (o Options) newCompressor() (compressor, error) {
	switch o.Compress {
	case "gzip":
		return gzip.NewWriter(nil), nil
	case "zstd":
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	}
	return nil, nil
}
