package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"nf/cmd/nf/internal/view"
	"nf/runtime/auth"
	"nf/runtime/clock"
	"nf/runtime/store"
)

func (sh *shell) keysCommand() *cli.Command {
	return &cli.Command{Name: "keys", Usage: "API keys", Subcommands: []*cli.Command{
		{
			Name: "create", Usage: "make a key; it is shown once",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "name", Usage: "name of the key", Required: false},
				&cli.StringSliceFlag{Name: "scope", Usage: "what it may do; repeatable"},
				&cli.StringSliceFlag{Name: "namespace", Aliases: []string{"n"}, Usage: "namespace, or *; repeatable (default)"},
			},
			Action: sh.action(0, 0, "", sh.keysCreate),
		},
		{Name: "list", Usage: "list the keys, without secrets", Action: sh.action(0, 0, "", sh.keysList)},
		{Name: "revoke", Usage: "end a key", ArgsUsage: "ID|NAME", Action: sh.action(1, 1, "the id or name of a key", sh.keysRevoke)},
	}}
}

func (sh *shell) keysCreate() error {
	name := sh.c.String("name")
	if name == "" || len(name) > 255 {
		return usage("nf keys create needs --name, at most 255 bytes")
	}
	var scopes []auth.Scope
	for _, text := range sh.c.StringSlice("scope") {
		scope, err := auth.ParseScope(text)
		if err != nil {
			return usage("%v", err)
		}
		scopes = append(scopes, scope)
	}
	if len(scopes) == 0 {
		return usage("nf keys create needs --scope").
			hinted("for example --scope executions:start --scope executions:read, or for a worker --scope 'queues:lease:*' --scope tasks:report")
	}
	namespaces := sh.c.StringSlice("namespace")
	switch {
	case slices.Contains(namespaces, "*") && len(namespaces) > 1:
		return usage("--namespace '*' stands for all: leave the others out")
	case slices.Contains(namespaces, "*"):
		namespaces = nil
	case len(namespaces) == 0:
		namespaces = []string{sh.settings.namespace.value}
	}
	s, _, _, err := sh.openToWrite(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	keys := auth.New(s, clock.System{})
	key, err := keys.Create(sh.ctx(), auth.Operator(sh.settings.actor()), name, scopes, namespaces, func(string) bool { return true })
	if errors.Is(err, store.ErrNameTaken) {
		return refused("a live key named %q exists", name).hinted("take another name, or end that one with: nf keys revoke %s", name)
	}
	if err != nil {
		return storeError(err)
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{
			"format_version": view.FormatVersion, "id": keyID(key), "name": name, "key": key, "scopes": scopes, "namespaces": shownNamespaces(namespaces == nil, namespaces),
		})
	}
	sh.print(key + "\n")
	sh.say("This is the only time that the key is shown. Use it as NF_API_KEY, together with NF_URL.")
	return nil
}

// keyID gives the public part of a key.
func keyID(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, "nfk_"), "_")
	return id
}

func shownNamespaces(all bool, names []string) []string {
	if all {
		return []string{"*"}
	}
	return names
}

func (sh *shell) keysList() error {
	s, _, err := sh.openStore(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	status, err := s.SchemaStatus(sh.ctx())
	if err != nil {
		return storeError(err)
	}
	if err := sh.databaseIs(status.Install.Environment); err != nil {
		return err
	}
	list, err := s.Keys(sh.ctx())
	if err != nil {
		return storeError(err)
	}
	if sh.settings.output == "json" {
		out := make([]map[string]any, len(list))
		for i := range list {
			out[i] = keyForm(&list[i])
		}
		return sh.json(map[string]any{"format_version": view.FormatVersion, "keys": out})
	}
	rows := make([][]string, len(list))
	for i := range list {
		k := &list[i]
		state := "live"
		if !k.RevokedAt.IsZero() {
			state = "revoked"
		}
		rows[i] = []string{k.ID, k.Name, state, strings.Join(k.Scopes, " "), strings.Join(shownNamespaces(k.AllNS, k.Namespaces), " "), k.CreatedBy}
	}
	sh.print(view.Table([]string{"ID", "NAME", "STATE", "SCOPES", "NAMESPACES", "MADE BY"}, rows))
	return nil
}

func keyForm(k *store.Key) map[string]any {
	out := map[string]any{
		"id": k.ID, "name": k.Name, "scopes": k.Scopes, "namespaces": shownNamespaces(k.AllNS, k.Namespaces), "created_by": k.CreatedBy,
		"created_at": k.CreatedAt.UTC().Format(timeFormat),
	}
	if !k.RevokedAt.IsZero() {
		out["revoked_at"] = k.RevokedAt.UTC().Format(timeFormat)
	}
	if !k.UsedAt.IsZero() {
		out["used_at"] = k.UsedAt.UTC().Format(timeFormat)
	}
	return out
}

func (sh *shell) keysRevoke() error {
	which := sh.c.Args().First()
	s, _, _, err := sh.openToWrite(sh.ctx())
	if err != nil {
		return err
	}
	defer s.Close()
	id, err := auth.New(s, clock.System{}).Revoke(sh.ctx(), auth.Operator(sh.settings.actor()), which)
	if errors.Is(err, store.ErrNotFound) {
		return fail("no live key has the id or name %q", which).hinted("nf keys list shows them")
	}
	if err != nil {
		return storeError(err)
	}
	if sh.settings.output == "json" {
		return sh.json(map[string]any{"format_version": view.FormatVersion, "id": id, "revoked": true})
	}
	sh.print("Revoked " + view.Safe(id) + ". Runners forget it within 10 seconds.\n")
	return nil
}
