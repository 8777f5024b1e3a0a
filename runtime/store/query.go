package store

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

//go:embed query/*.sql
var queryFiles embed.FS

// statements maps each name to its text. A statement begins with a line "-- name: x" and ends at the next one.
var statements = sync.OnceValue(func() map[string]string {
	all, err := parseQueries(queryFiles)
	if err != nil {
		panic(err) //nolint:forbidigo // embedded at build time; a test loads it
	}
	return all
})

func parseQueries(files fs.FS) (map[string]string, error) {
	names, err := fs.Glob(files, "query/*.sql")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		for _, part := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			name = strings.TrimSpace(name)
			if _, twice := all[name]; twice {
				return nil, fmt.Errorf("%s: statement %q stands twice", file, name)
			}
			all[name] = strings.TrimSuffix(strings.TrimSpace(body), ";")
		}
	}
	return all, nil
}

// statement gives a statement by name. In a statement that names a day's leaf, {day} is replaced by YYYYMMDD.
func statement(name, day string) string {
	text, ok := statements()[name]
	if !ok {
		panic("store: no statement " + name) //nolint:forbidigo // a test finds each name in the source
	}
	if strings.Contains(text, "{day}") {
		if len(day) != 8 || strings.Trim(day, "0123456789") != "" {
			panic("store: statement " + name + " needs a day") //nolint:forbidigo // a caller's bug that any test of it shows
		}
		text = strings.ReplaceAll(text, "{day}", day)
	}
	return text
}
