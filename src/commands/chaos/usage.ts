export const usage = `breakwater chaos: drives the chaos mesh of a running gateway, over its control port

  breakwater chaos status               what is armed, and what came of it
  breakwater chaos arm | disarm         arms the faults of the plan | lets go of everything
  breakwater chaos kill | unkill        stops all faults and blocks new ones | lifts that
  breakwater chaos renew                begins the time of the lease again
  breakwater chaos inject TARGET TYPE   one fault, for a time; TARGET is SERVER or SERVER/TOOL, as globs
  breakwater chaos clear ID             ends an injected fault
  breakwater chaos clear-all            ends all injected faults
  breakwater chaos explain CALL         why a call was hit or not: by its id, its callKey or its intent
  breakwater chaos plan                 what was hit lately, and what would have been in shadow mode
  breakwater chaos replay               decides again what a journal says was decided; needs no gateway

  --control URL         the control port (default: http://127.0.0.1:8081)
  --token TOKEN         the control token (default: BREAKWATER_TOKEN, or what the gateway wrote for its own user)
  --json                the answer as it is
  --by WHO, --why WHY   for the journal                            [arm, disarm, kill, unkill]
  --duration SECONDS    how long (default: 900)                    [inject]
  --rate RATE           share of the calls (default: 1)            [inject]
  --status CODE         error, http.status                         [inject]
  --delay MS            latency, timeout, connection-drop, ...     [inject]
  --retry-after SECONDS rate-limit, limit.429                      [inject]
  --fields A,B          schema-mismatch                            [inject]
  --config JSON         further fields of the fault                [inject]
  --allow-writes        also tools not known to be read-only       [inject]
  --last DURATION       how far back (default: 1h)                 [plan]
  --plan FILE           a plan, or a config with one               [replay]
  --journal FILE        may be repeated, the oldest file first     [replay]

  TYPE is latency, error, timeout, malformed, connection-refused, connection-drop, rate-limit or
  schema-mismatch, or a type of a plan such as conn.latency. Exit codes: 0, or 1 when it did not work.`
