package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/sources"
)

// freshTime is how long after a change of a file somebody may still be writing it.
const freshTime = 10 * time.Second

// examineSource looks at one source. An error is a mistake in SRC.
func examineSource(ctx context.Context, spec string, j *job) ([]check, error) {
	subject := "source " + sourceName(spec)
	once := *j
	once.follow = false
	src, err := newSource(spec, &once, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if ok, reason := src.(checked).Replayable(); !ok {
		return []check{{subject, "replayable", weaker, "no: " + reason, "write it to a file first, and read that", pipeline.AtMostOnce}}, nil
	}
	files, ok := src.(checked).Source.(*sources.Files)
	if !ok {
		return []check{passed(subject, "replayable", "yes", "")}, nil
	}
	paths, err := files.Paths()
	if err != nil {
		return []check{refused(subject, "files", err.Error(), "name a file, directory or pattern that is there")}, nil
	}
	checks := []check{filesCheck(subject, paths, j)}
	if len(paths) > 0 {
		checks = append(checks, readable(ctx, subject, src), lastLine(subject, paths[len(paths)-1], j.follow))
	}
	checks = append(checks, passed(subject, "replayable", "yes: files are read again from any position", ""))
	if j.follow {
		checks = append(checks, rotation(subject, paths, j))
	}
	return checks, nil
}

func filesCheck(subject string, paths []string, j *job) check {
	if len(paths) == 0 {
		if j.follow {
			return passed(subject, "files", "none yet; waited for", "")
		}
		return refused(subject, "files", "none", "name files that are there, or wait for them with --follow")
	}
	var size int64
	var newest time.Time
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return refused(subject, "files", err.Error(), "give this user permission, or take the file away")
		}
		size += info.Size()
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	c := passed(subject, "files", fmt.Sprintf("%s, %s", count(uint64(len(paths)), "file"), formatSize(size)), "")
	if age := time.Since(newest); age < freshTime && !j.follow {
		c.Found += ", changed " + age.Round(time.Second).String() + " ago"
		c.Change = "a file that is still written is read to where it ends now: use --follow, or wait until it is whole"
	}
	return c
}

// readable reads the first record.
func readable(ctx context.Context, subject string, src pipeline.Source) check {
	err := src.Open(ctx, nil)
	if err == nil {
		_, err = src.Read(ctx, 1)
	}
	switch closed := src.Close(); {
	case errors.Is(err, io.EOF):
		return passed(subject, "readable", "yes, without a record", "")
	case err != nil || closed != nil:
		return refused(subject, "readable", errors.Join(err, closed).Error(), "mend the source, or give this user permission")
	}
	return passed(subject, "readable", "yes, from the first record", "")
}

// lastLine looks whether the last file ends with a whole line.
func lastLine(subject, path string, follow bool) check {
	const name = "last line"
	if strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".zst") {
		return passed(subject, name, "not looked at: "+path+" is compressed", "")
	}
	last, err := lastByte(path)
	switch {
	case err != nil:
		return refused(subject, name, err.Error(), "give this user permission to read it")
	case last == '\n' || last == 0:
		return passed(subject, name, "complete", "")
	case follow:
		return passed(subject, name, "without a line end in "+path, "it waits until the line ends")
	}
	return passed(subject, name, "without a line end in "+path, "it is taken as a record: wait, or use --follow, if a writer is still at work")
}

// lastByte is the last byte of a file, 0 if it is empty.
func lastByte(path string) (byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, info.Size()-1)
	return b[0], err
}

// rotation is about files that are followed.
func rotation(subject string, paths []string, j *job) check {
	c := passed(subject, "rotation", "a file that is renamed is read to its end first",
		"rotate by renaming: what is written between the last look and a cut (copytruncate) is lost")
	if len(paths) > 1 && j.lanes > 1 {
		c.Found += "; several files are read as they grow"
		c.Change += "; keep the state directory: without it the order over several lanes cannot be repeated"
	}
	return c
}
