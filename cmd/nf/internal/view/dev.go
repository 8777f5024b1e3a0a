package view

import "fmt"

// DevReady says what somebody can do now that nf dev is up.
func DevReady(url, workflow string) string {
	if workflow == "" {
		workflow = "WORKFLOW"
	}
	return fmt.Sprintf(`nf dev is up: %s   (docs: %s/v1/docs)
In another terminal, in this folder:
    nf start %s --wait          start it and wait
    nf get EXECUTION --watch      follow an execution
    nf worker -- ./script         do SIMPLE tasks
    nf plan, nf apply             after a change of the files
Ctrl-C stops everything; the data stays for the next time.`, Safe(url), Safe(url), Safe(workflow))
}

// DevDatabase says what somebody can do now that the database of nf dev is up.
func DevDatabase(url string) string {
	return fmt.Sprintf(`The private Postgres is up: %s
In another terminal, in this folder: nf apply, nf run.
Ctrl-C stops it; the data stays for the next time.`, Safe(url))
}
