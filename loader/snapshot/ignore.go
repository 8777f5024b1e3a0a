package snapshot

import (
	"regexp"
	"strings"
)

// ignore holds the patterns of .nfignore. They follow the usual rules of such files: one glob a line, `#` comments, `!`
// takes back, a `/` at the start or inside ties a pattern to the project's folder, a `/` at the end means folders, `*` and
// `?` stop at `/`, `**` does not. The last matching pattern wins; nothing below an ignored folder is looked at.
type ignore struct{ patterns []pattern }

type pattern struct {
	match   *regexp.Regexp
	folders bool
	negated bool
}

func parseIgnore(text []byte) ignore {
	var ig ignore
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		var p pattern
		if line[0] == '!' {
			p.negated, line = true, line[1:]
		}
		if strings.HasSuffix(line, "/") {
			p.folders, line = true, strings.TrimRight(line, "/")
		}
		line = strings.TrimPrefix(line, "\\") // \# and \!
		tied := strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if line == "" {
			continue
		}
		expr := globExpr(line)
		if !tied {
			expr = "(?:.*/)?" + expr
		}
		if re, err := regexp.Compile("^" + expr + "$"); err == nil {
			p.match = re
			ig.patterns = append(ig.patterns, p)
		}
	}
	return ig
}

// globExpr turns a glob into a regular expression.
func globExpr(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '*':
			switch {
			case strings.HasPrefix(glob[i:], "**/"):
				b.WriteString("(?:.*/)?")
				i += 2
			case strings.HasPrefix(glob[i:], "**"):
				b.WriteString(".*")
				i++
			default:
				b.WriteString("[^/]*")
			}
		case '?':
			b.WriteString("[^/]")
		case '[':
			end := strings.IndexByte(glob[i+1:], ']')
			if end < 1 {
				b.WriteString(`\[`)
				continue
			}
			class := glob[i+1 : i+1+end]
			not := ""
			if class[0] == '!' || class[0] == '^' {
				not, class = "^", class[1:]
			}
			b.WriteString("[" + not + strings.ReplaceAll(strings.ReplaceAll(class, `\`, `\\`), "[", `\[`) + "]")
			i += end + 1
		case '\\':
			if i+1 < len(glob) {
				i++
				b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
			}
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	return b.String()
}

// skips says whether a path is left out by .nfignore.
func (ig ignore) skips(path string, isFolder bool) bool {
	skip := false
	for _, p := range ig.patterns {
		if (isFolder || !p.folders) && p.match.MatchString(path) {
			skip = !p.negated
		}
	}
	return skip
}

// hidden says whether a name is never looked at: names that start with . or _, and what editors leave behind.
func hidden(name string) bool {
	return name == "" || name[0] == '.' || name[0] == '_' || name == "4913" || strings.HasSuffix(name, "~") ||
		strings.HasSuffix(name, ".swp") || name[0] == '#' && strings.HasSuffix(name, "#")
}

// manifest says whether a name is that of a manifest.
func manifest(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json")
}
