package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/walsink/walsink/record"
)

// A Mode says what a step does with its records.
type Mode uint8

const (
	// Insert copies every record into the table as a new row.
	Insert Mode = iota
	// Upsert applies the last write of each key, in lane order: it inserts, updates
	// or, for a tombstone, deletes the row.
	Upsert
	// Statement puts the records into a temporary table and runs one SQL statement
	// per step.
	Statement
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Insert:
		return "insert"
	case Upsert:
		return "upsert"
	case Statement:
		return "statement"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// A Column is the name of a column and its SQL type, with what may follow a type
// in a table definition, as "numeric(12,2) not null". The type is put into SQL as
// it is: it comes from configuration, never from records.
type Column struct {
	Name string
	Type string
}

// Defaults of Options.
const (
	DefaultLedger    = "walsink"
	DefaultAuditRows = 10_000
	DefaultStepBytes = 64 << 20
	DefaultTakeover  = 5 * time.Second
)

// Options configure a Sink. Table is required, except in mode Statement; the zero
// value of everything else is a sensible choice.
type Options struct {
	// Schema and Table name the destination, exactly, without any quoting: a dot, a
	// quote or a capital letter is a part of the name. With Schema empty the table
	// is looked up along the role's search_path once, at Open.
	Schema, Table string
	// Columns are the columns that records have, in order. Empty means every column
	// of the table for which the server has no value of its own: no default, no
	// identity, not generated. Name a column with a default to write it.
	Columns []string
	// Mode says what a step does with its records.
	Mode Mode
	// Key are the columns of a unique constraint, for mode Upsert.
	Key []string
	// Define are the columns of the table that Create makes, or, in mode Statement,
	// those of the relation walsink_batch.
	Define []Column
	// Create makes the table from Define if it does not exist. In mode Upsert Key
	// becomes its primary key.
	Create bool
	// Statement is the SQL of mode Statement. It reads the records of the step, in
	// the order of walsink_n, from pg_temp.walsink_batch.
	Statement string
	// Rest is a json or jsonb column that takes the fields of a JSON record for
	// which there is no column. Empty refuses such a record.
	Rest string
	// Tombstone is the field of a JSON record that, when true, makes the record a
	// delete of its key. For mode Upsert.
	Tombstone string
	// Ledger is the schema of the ledger; empty means DefaultLedger.
	Ledger string
	// NoCreateLedger leaves it to a person to run Script. Otherwise Open runs it if
	// the ledger does not exist.
	NoCreateLedger bool
	// AuditRows is how many audit rows are kept per lane; 0 means DefaultAuditRows.
	// A batch whose row is gone is still known to be in, by the mark.
	AuditRows int
	// StepBytes is the most record bytes in one transaction; 0 means
	// DefaultStepBytes. Small batches are put together up to it.
	StepBytes int64
	// Chunked lets a batch over StepBytes be cut into several transactions, so that
	// a reader can see a part of a checkpoint. Otherwise a batch is never cut.
	Chunked bool
	// MaxRecord is the longest encoded record in bytes; 0 means record.MaxRecord,
	// which is also the most. A tuple that is sent as text takes more there: twice as
	// many bytes and a few for bytea, as many as its escapes for other types.
	MaxRecord int
	// Takeover is how long Acquire and Mark wait for the transaction of an earlier
	// flush before they terminate its backend; 0 means DefaultTakeover.
	Takeover time.Duration
}

// maxName is the longest identifier in bytes; the server cuts longer ones.
const maxName = 63

// maxColumns is how many columns a table can have.
const maxColumns = 1600

// Names of our own in temporary relations.
const (
	stageTable = "walsink_stage"
	batchTable = "walsink_batch"
	findTable  = "walsink_find"
	badTable   = "walsink_bad"
	ordinal    = "walsink_n"
	operation  = "walsink_op"
)

// withDefaults returns a copy of o that is complete and free of contradictions.
func (o Options) withDefaults() (Options, error) {
	o.Ledger = orDefault(o.Ledger, DefaultLedger)
	o.AuditRows = orDefault(o.AuditRows, DefaultAuditRows)
	o.StepBytes = orDefault(o.StepBytes, DefaultStepBytes)
	o.MaxRecord = orDefault(o.MaxRecord, record.MaxRecord)
	o.Takeover = orDefault(o.Takeover, DefaultTakeover)
	if o.AuditRows < 1 || o.StepBytes < 1 || o.MaxRecord < 1 || o.Takeover < time.Millisecond {
		return o, errors.New("options: AuditRows, StepBytes, MaxRecord and Takeover must be positive")
	}
	o.MaxRecord = min(o.MaxRecord, record.MaxRecord)
	if err := o.checkNames(); err != nil {
		return o, err
	}
	return o, o.checkMode()
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (o *Options) checkNames() error {
	names := []string{o.Ledger}
	if o.Mode != Statement {
		names = append(names, o.Table)
	}
	if o.Schema != "" {
		names = append(names, o.Schema)
	}
	if o.Rest != "" {
		names = append(names, o.Rest)
	}
	names = append(append(names, o.Columns...), o.Key...)
	for _, c := range o.Define {
		names = append(names, c.Name)
		if strings.TrimSpace(c.Type) == "" {
			return fmt.Errorf("options: column %q has no type", c.Name)
		}
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	for _, list := range [...][]string{o.Columns, o.Key} {
		if len(list) > maxColumns {
			return fmt.Errorf("options: %d columns, the limit is %d", len(list), maxColumns)
		}
		sorted := slices.Sorted(slices.Values(list))
		if len(slices.Compact(sorted)) != len(list) {
			return errors.New("options: a column is named twice")
		}
	}
	return nil
}

// checkName refuses identifiers that the server would refuse or, worse, cut.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("options: an empty name; Table and every column need one")
	case len(name) > maxName:
		return fmt.Errorf("options: name %q has %d bytes, the limit is %d", name, len(name), maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("options: name %q contains a NUL", name)
	case strings.HasPrefix(name, "walsink_") && slices.Contains([]string{ordinal, operation}, name):
		return fmt.Errorf("options: name %q is reserved", name)
	}
	return nil
}

func (o *Options) checkMode() error {
	switch o.Mode {
	case Insert, Upsert:
		if o.Statement != "" {
			return fmt.Errorf("options: Statement is for mode statement, not %s", o.Mode)
		}
	case Statement:
		if o.Statement == "" || len(o.Define) == 0 {
			return errors.New("options: mode statement needs Statement and Define")
		}
		if o.Create || o.Table != "" {
			return errors.New("options: mode statement takes neither Table nor Create")
		}
	default:
		return fmt.Errorf("options: unknown %s", o.Mode)
	}
	if o.Mode == Upsert && len(o.Key) == 0 {
		return errors.New("options: mode upsert needs Key")
	}
	if o.Mode != Upsert && (len(o.Key) > 0 || o.Tombstone != "") {
		return fmt.Errorf("options: Key and Tombstone are for mode upsert, not %s", o.Mode)
	}
	if o.Create && len(o.Define) == 0 {
		return errors.New("options: Create needs Define, the columns of the table")
	}
	return nil
}
