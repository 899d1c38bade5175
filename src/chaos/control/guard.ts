/** The facts that decide whether faults may be armed here at all. */
export interface Locks {
  /** The config's `gateway.environment`, as it was at boot. */
  readonly environment: string | undefined
  /** The config's `gateway.chaosEnvironments`, as they were at boot; undefined where there is no such key. */
  readonly chaosEnvironments?: readonly string[] | undefined
  /** The process's environment variables, as they were at boot. */
  readonly variables: Readonly<Record<string, string | undefined>>
}

/** Names of environments that everybody means for tests. All others have to be named by the config, or refuse. */
const forTests: readonly string[] = ['dev', 'development', 'test', 'staging', 'sandbox', 'qa', 'local']

/** Names of environments that nobody can mean for tests. */
const neverForTests: readonly string[] = ['production', 'prod', 'prd', 'live']

/** Words before them that turn the meaning round: `pre-production`, `non_prod`. */
const turning: readonly string[] = ['pre', 'non', 'not', 'no']

/** Whether faults may be armed in an environment of that name if a config says so: `prod-eu` and `PROD1` are production, too. */
export function mayBeForTests(environment: string): boolean {
  const words = normalized(environment).split(/[^a-z]+/)
  return !words.some(
    (word, index) =>
      (neverForTests.includes(word) || word.startsWith('production')) &&
      !turning.includes(words[index - 1] ?? ''),
  )
}

/** Environment variables that say what a process is part of, by custom. */
const telling: readonly string[] = ['NODE_ENV', 'ENVIRONMENT']

/**
 * The environment lock: why it refuses, or undefined. It fails closed: what is not known to be for tests refuses. Taken
 * once at boot, so that nothing can open it later.
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

/** The three keys: the environment, the flag and a plan. Says which one is missing; undefined when none is. */
export function refusalOf(lock: string | undefined, enabled: boolean, faults: number): string | undefined {
  if (lock !== undefined) return `refused: ${lock}`
  if (!enabled) return 'refused: chaos.enabled is false'
  if (faults === 0) return 'refused: the plan has no faults'
  return undefined
}
