package postgres

import (
	"fmt"
	"reflect"
	"strings"
)

// Rows returns a function that appends the record for one T, in the manner of
// [Sink.AppendRow]. T is []any or a struct. A struct's exported field goes to
// the column that its tag `db:"name"` names, or else to the one of the same name
// if letter case and underscores are left aside; `db:"-"` leaves it out. Columns
// without a field are null. Rows refuses a field without a column and a column
// without a field that takes no null.
func Rows[T any](s *Sink) (func(dst []byte, row T) ([]byte, error), error) {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[[]any]() {
		return func(dst []byte, row T) ([]byte, error) { return s.AppendRow(dst, any(row).([]any)) }, nil
	}
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("rows of %v: want a struct or []any", t)
	}
	fields, err := s.fields(t)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, row T) ([]byte, error) {
		r := reflect.ValueOf(&row).Elem()
		values := make([]any, len(fields))
		for i, index := range fields {
			if index != nil {
				values[i] = r.FieldByIndex(index).Interface()
			}
		}
		return s.AppendRow(dst, values)
	}, nil
}

// fields maps the columns to the fields of t.
func (s *Sink) fields(t reflect.Type) ([][]int, error) {
	fields := make([][]int, len(s.table.columns))
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("db")
		if !f.IsExported() || f.Anonymous || tag == "-" || viaPointer(t, f.Index) {
			continue
		}
		i := s.columnFor(f.Name, tag)
		if i < 0 {
			return nil, fmt.Errorf("rows of %v: field %s: %s has no such column; tag it `db:\"-\"` to leave it out", t, f.Name, s.table.plain)
		}
		if fields[i] != nil {
			return nil, fmt.Errorf("rows of %v: field %s: another field is for column %q too", t, f.Name, s.table.columns[i].name)
		}
		fields[i] = f.Index
	}
	for i, c := range s.table.columns {
		if fields[i] == nil && (c.notNull || s.isKey(&c)) {
			return nil, fmt.Errorf("rows of %v: no field for column %q, which takes no null", t, c.name)
		}
	}
	return fields, nil
}

// viaPointer reports whether a promoted field is behind an embedded pointer,
// which may be nil.
func viaPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		f := t.Field(i)
		if f.Type.Kind() == reflect.Pointer {
			return true
		}
		t = f.Type
	}
	return false
}

func (s *Sink) columnFor(field, tag string) int {
	if tag != "" {
		if i, ok := s.table.index[tag]; ok {
			return i
		}
		return -1
	}
	for i, c := range s.table.columns {
		if strings.EqualFold(strings.ReplaceAll(c.name, "_", ""), strings.ReplaceAll(field, "_", "")) {
			return i
		}
	}
	return -1
}
