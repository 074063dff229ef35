package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
)

// A manifest is the whole state of a lane. Its file is a header line and one line
// of JSON:
//
//	walsink manifest 1 CCCCCCCC NNNNNNNN\n
//	{…}\n
//
// CCCCCCCC is the CRC-32C of the JSON with its newline, NNNNNNNN its length, both
// in hexadecimal.
type manifest struct {
	// Number is the manifest's own, and the name of its file.
	Number uint64       `json:"number"`
	Lane   sinks.LaneID `json:"lane"`
	// Prev is the tip that the last step was built on.
	Prev record.Chain `json:"prev"`
	Mark sinks.Mark   `json:"mark"`
	// Step is the manifest that brought Parts. All parts of earlier ones were
	// published before this manifest was made.
	Step  uint64 `json:"step,omitempty"`
	Parts []part `json:"parts,omitempty"`
	// Base is the newest manifest, up to this one, whose Audit holds all retained
	// rows. That of the others holds the rows of the last step.
	Base  uint64        `json:"base"`
	Audit []sinks.Audit `json:"audit,omitempty"`

	raw []byte // the file
}

// A part is a file with records, staged or published.
type part struct {
	Name   string `json:"name"`
	Bucket string `json:"bucket,omitempty"`
	// Dead says that the records are dead letters.
	Dead bool `json:"dead,omitempty"`
	// Staged is the name below stage until it is published.
	Staged string `json:"staged"`
	// Bytes and Sum, an XXH64 in hexadecimal, are of the file as it is, compressed or
	// not.
	Bytes   int64  `json:"bytes"`
	Sum     string `json:"xxh64"`
	Records int64  `json:"records"`
}

const (
	manifestHeader = "walsink manifest 1 "
	headerSize     = len(manifestHeader) + 8 + 1 + 8 + 1
	maxManifest    = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode sets and returns the bytes of m's file.
func (m *manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	if len(body) > maxManifest-headerSize {
		return nil, fmt.Errorf("manifest %d: %w: %d bytes, the limit is %d; keep fewer audit rows, or make fewer parts",
			m.Number, errRefused, len(body), maxManifest)
	}
	m.raw = fmt.Appendf(nil, "%s%08x %08x\n", manifestHeader, crc32.Checksum(body, castagnoli), len(body))
	m.raw = append(m.raw, body...)
	return m.raw, nil
}

// decodeManifest is the inverse of encode. It keeps raw.
func decodeManifest(raw []byte) (*manifest, error) {
	if len(raw) < headerSize {
		return nil, fmt.Errorf("%w: %d bytes are shorter than a header", errDamaged, len(raw))
	}
	head, body := raw[:headerSize], raw[headerSize:]
	want := fmt.Appendf(nil, "%s%08x %08x\n", manifestHeader, crc32.Checksum(body, castagnoli), len(body))
	if !bytes.Equal(head, want) {
		return nil, fmt.Errorf("%w: header %q, the contents call for %q", errDamaged, head, want)
	}
	m := &manifest{raw: raw}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %v", errDamaged, err)
	}
	if m.Number == 0 || m.Base == 0 || m.Base > m.Number || m.Step > m.Number {
		return nil, fmt.Errorf("%w: numbers do not add up: number %d, base %d, step %d", errDamaged, m.Number, m.Base, m.Step)
	}
	for _, p := range m.Parts {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%w: part %q: %v", errDamaged, p.Name, err)
		}
	}
	return m, nil
}

// check refuses names that lead elsewhere.
func (p part) check() error {
	for _, name := range []string{p.Name, p.Staged} {
		if name == "" || name[0] == '.' || path.Base(name) != name {
			return fmt.Errorf("name %q", name)
		}
	}
	if p.Bucket != "" {
		return checkBucket(p.Bucket)
	}
	return nil
}

// dir is the directory of the published part.
func (p part) dir(lane string) string {
	switch {
	case p.Dead:
		return path.Join(lane, "dead")
	case p.Bucket != "":
		return p.Bucket
	}
	return "."
}

// path is where the part is published.
func (p part) path(lane string) string { return path.Join(p.dir(lane), p.Name) }
