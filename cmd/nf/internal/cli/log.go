package cli

import (
	"log/slog"
)

// logger writes to standard error in the form and at the level that flags or variables say. With -v it says more, with -q less.
func (sh *shell) logger() (*slog.Logger, error) {
	fallback := "info"
	switch {
	case sh.settings.verbose:
		fallback = "debug"
	case sh.settings.quiet:
		fallback = "error"
	}
	var level slog.Level
	switch text := sh.settings.pick(sh.c, "log-level", "NF_LOG_LEVEL", fallback); text.value {
	case "debug":
		level = slog.LevelDebug
	case "info":
		level = slog.LevelInfo
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	default:
		return nil, usage("%s: unknown level %q", text.name, text.value).hinted("use debug, info, warn or error")
	}
	options := &slog.HandlerOptions{Level: level}
	switch text := sh.settings.pick(sh.c, "log-format", "NF_LOG_FORMAT", "text"); text.value {
	case "text":
		return slog.New(slog.NewTextHandler(sh.stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(sh.stderr, options)), nil
	default:
		return nil, usage("%s: unknown format %q", text.name, text.value).hinted("use text or json")
	}
}
