package diag

// applyCodes are the findings of plan, apply and load.
var applyCodes = []Explanation{
	{
		Code: "NF6101", Title: "owned by another project", Rule: "owned-by-other-project", Level: Error,
		Text: "The object in the database belongs to another project. An object cannot change its project yet, not even when it is retired there: declare it under another name or namespace here.",
	},
	{
		Code: "NF6102", Title: "unowned object of this name", Rule: "unowned-object", Level: Error,
		Text: "An object of this name was made outside the files. It cannot be taken over yet: choose another name.",
	},
	{
		Code: "NF6103", Title: "too many retirements", Rule: "too-many-retirements", Level: Error,
		Text: "The change would retire more objects than the guard allows, or all of them. A source that vanished by accident must not stop production. If it is meant, say so with the flag that the finding names.",
	},
	{
		Code: "NF6106", Title: "plan is outdated", Rule: "plan-outdated", Level: Error,
		Text: "What the plan was made against has changed since. Make the plan again.",
	},
	{
		Code: "NF6107", Title: "commit does not contain what is in force", Rule: "commit-out-of-order", Level: Error,
		Text: "What is in force came from a commit that this one does not contain, so applying it would undo changes that nobody decided to undo. Merge or rebase. To go back on purpose use `nf apply --rewind --reason TEXT`. A plan only warns.",
	},
	{
		Code: "NF6108", Title: "database of another environment", Rule: "other-environment", Level: Error,
		Text: "The database holds the name of its environment, and it is not the one asked for. Check the database URL and the environment.",
	},
	{
		Code: "NF6109", Title: "other content under an applied version", Rule: "version-reused", Level: Error,
		Text: "A `version` that was applied keeps its content for ever. Give the changed workflow a new version, or no version.",
	},
	{
		Code: "NF7001", Title: "no project or no manifests", Rule: "nothing-found", Level: Error,
		Text: "There is no `nf.yaml` in the folder, or no manifests under its roots.",
	},
	{
		Code: "NF7002", Title: "root missing", Rule: "root-missing", Level: Error,
		Text: "A folder that `spec.roots` names does not exist or cannot be read.",
	},
	{
		Code: "NF7003", Title: "link leaves the project", Rule: "link-leaves-project", Level: Error,
		Text: "A symbolic link points outside the project. What is applied must be all in the project.",
	},
	{
		Code: "NF7004", Title: "projects in each other's way", Rule: "roots-overlap", Level: Error,
		Text: "One runner hosts two projects that read the same file, or that have the same name. Narrow `spec.roots`, name the folder in `.nfignore`, or give each project a runner of its own. The project that was named first goes on.",
	},
	{
		Code: "NF7005", Title: "source busy", Rule: "source-busy", Level: Warning,
		Text: "Git has been changing the work tree for more than a minute: a lock file, a merge or a rebase. The runner waits; what is in force goes on. Finish the operation, or remove the lock of a git that is gone.",
	},
	{
		Code: "NF7006", Title: "dirty work tree ignored", Rule: "dirty-tree", Level: Warning,
		Text: "In a git checkout HEAD's commit is read, never the files. These files differ from it. Commit them.",
	},
	{
		Code: "NF7007", Title: "polling only", Rule: "polling-only", Level: Warning,
		Text: "The system gives no more watches of folders, so that changes are found by looking every `--poll`. Raise fs.inotify.max_user_watches or max_user_instances, or leave it so.",
	},
	{
		Code: "NF7008", Title: "source changed while it was read", Rule: "source-moved", Level: Warning,
		Text: "Files or HEAD changed during the read, so that it was not used. The runner reads again.",
	},
}
