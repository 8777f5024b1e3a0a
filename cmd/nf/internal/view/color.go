package view

import (
	"regexp"
	"strings"
)

// The colours of signs and levels. Colour only repeats what a sign or word says.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	plain  = "\x1b[0m"
)

var level = regexp.MustCompile(`^(\S+: )(error|warning|info)(\[NF\d{4}\])`) //nolint:gochecknoglobals // compiled once

// Colored colours a text made by Plan or of findings. Foreign text in it has gone through Safe before.
func Colored(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = coloredLine(line)
	}
	return strings.Join(lines, "\n")
}

func coloredLine(line string) string {
	switch {
	case strings.HasPrefix(line, "+ "):
		return green + line + plain
	case strings.HasPrefix(line, "~ "):
		return yellow + line + plain
	case strings.HasPrefix(line, "- "), strings.HasPrefix(line, "x "):
		return red + line + plain
	}
	found := level.FindStringSubmatch(line)
	if found == nil {
		return line
	}
	color := map[string]string{"error": red, "warning": yellow, "info": cyan}[found[2]]
	return found[1] + color + found[2] + found[3] + plain + line[len(found[0]):]
}
