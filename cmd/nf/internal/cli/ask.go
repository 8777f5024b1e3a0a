package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// terminal says whether somebody can be asked.
func (sh *shell) terminal() bool {
	in, ok := sh.stdin.(*os.File)
	return ok && !sh.settings.noInput && isatty.IsTerminal(in.Fd())
}

// ask wants a yes from the person at the terminal. Anything else is a no.
func (sh *shell) ask(question string) error {
	fmt.Fprint(sh.stderr, question+" [y/N] ")
	answers := make(chan string, 1)
	failed := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(sh.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			failed <- err
			return
		}
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-sh.ctx().Done():
		return sh.ctx().Err()
	case err := <-failed:
		return fail("answer: %w", err)
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return refused("nothing was changed")
	}
}
