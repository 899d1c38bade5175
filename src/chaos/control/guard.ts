/** The facts that decide whether faults may be armed here at all. */
export interface Locks {
  /** The config's `gateway.environment`, at boot. */
  readonly environment: string | undefined
  /** The config's `gateway.chaosEnvironments`, at boot; undefined without the key. */
  readonly chaosEnvironments?: readonly string[] | undefined
  /** The process's environment variables, at boot. */
  readonly variables: Readonly<Record<string, string | undefined>>
}

/** Names always meaning test environments. The config has to name all others, or arming is refused. */
const forTests: readonly string[] = ['dev', 'development', 'test', 'staging', 'sandbox', 'qa', 'local']

/** Names never meaning test environments. */
const neverForTests: readonly string[] = ['production', 'prod', 'prd', 'live']

/** Prefixes that reverse the meaning: `pre-production`, `non_prod`. */
const turning: readonly string[] = ['pre', 'non', 'not', 'no']

/** Whether a config may allow faults in an environment of this name: `prod-eu` and `PROD1` are production, too. */
export function mayBeForTests(environment: string): boolean {
  const words = normalized(environment).split(/[^a-z]+/)
  return !words.some(
    (word, index) =>
      (neverForTests.includes(word) || word.startsWith('production')) &&
      !turning.includes(words[index - 1] ?? ''),
  )
}

/** Environment variables that name the environment of a process, by custom. */
const telling: readonly string[] = ['NODE_ENV', 'ENVIRONMENT']

/**
 * Returns why the environment lock refuses, or undefined. The lock fails closed: it refuses any environment not known
 * to be for tests. Read once at boot, so nothing can open the lock later.
 */
export function environmentLock({ environment, chaosEnvironments, variables }: Locks): string | undefined {
  if (environment === undefined || environment === '') {
    return 'gateway.environment is not set, which counts as production; set it to the name of a test environment'
  }
  const allowed = new Set([...forTests, ...(chaosEnvironments ?? []).map(normalized)])
  const said = [
    { where: 'gateway.environment', name: environment },
    ...telling.map((name) => ({ where: `the environment variable ${name}`, name: variables[name] ?? '' })),
  ]
  const refusing = said.find(({ name }) => name.trim() !== '' && !allowed.has(normalized(name)))
  if (refusing === undefined) return undefined
  const why = `${refusing.where} is "${refusing.name}"`
  if (!mayBeForTests(refusing.name)) return `${why}, which counts as production`
  const hint = chaosEnvironments === undefined ? '' : '; gateway.chaosEnvironments may name it'
  return `${why}, which is none of ${forTests.join(', ')}${hint}`
}

const normalized = (name: string) => name.trim().toLowerCase()

/** The three keys: environment, flag and plan. Returns the missing key; undefined when none is missing. */
export function refusalOf(lock: string | undefined, enabled: boolean, faults: number): string | undefined {
  if (lock !== undefined) return `refused: ${lock}`
  if (!enabled) return 'refused: chaos.enabled is false'
  if (faults === 0) return 'refused: the plan has no faults'
  return undefined
}
