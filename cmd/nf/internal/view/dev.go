package view

import "fmt"

// DevReady says what somebody can do now that nf dev is up.
func DevReady(url, workflow string) string {
	if workflow == "" {
		workflow = "WORKFLOW"
	}
	line := func(command, what string) string { return fmt.Sprintf("    %-44s %s\n", command, what) }
	return fmt.Sprintf("nf dev is up: %s   (reference: %s/v1/docs)\nIn another terminal, in this folder:\n", Safe(url), Safe(url)) +
		line("nf start "+Safe(workflow)+" --input '{…}' --wait", "start it and wait") +
		line("nf get EXECUTION --watch", "follow it") +
		line("nf worker -- ./script", "do SIMPLE tasks") +
		"What you save is in force a moment later; what is wrong with it is told here.\n" +
		"Ctrl-C stops everything; the data stays for the next time."
}

// DevDatabase says what somebody can do now that the database of nf dev is up.
func DevDatabase(url string) string {
	return fmt.Sprintf(`The private Postgres is up: %s
In another terminal, in this folder: nf plan, nf apply, nf run.
Ctrl-C stops it; the data stays for the next time.`, Safe(url))
}
