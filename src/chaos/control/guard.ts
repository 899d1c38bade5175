/** The facts that decide whether this process may arm faults. */
export interface Locks {
  /** The config's `gateway.environment`, at boot. */
  readonly environment: string | undefined
  /** The config's `gateway.chaosEnvironments`, at boot; undefined without the key. */
  readonly chaosEnvironments?: readonly string[] | undefined
  /** The process's environment variables, at boot. */
  readonly variables: Readonly<Record<string, string | undefined>>
}

/**
 * Names of environments that always count as test environments. `gateway.chaosEnvironments` has to list other names, or
 * arming is refused.
 */
const forTests: readonly string[] = ['dev', 'development', 'test', 'staging', 'sandbox', 'qa', 'local']

/** Words in the names of production environments. */
const neverForTests: readonly string[] = ['production', 'prod', 'prd', 'live']

/** Words that turn a following `production` into a test environment: `pre-production`, `non_prod`. */
const turning: readonly string[] = ['pre', 'non', 'not', 'no']

/**
 * Returns false for the name of a production environment, such as `prod-eu` or `PROD1`: no config may allow faults
 * there.
 */
export function mayBeForTests(environment: string): boolean {
  const words = normalized(environment).split(/[^a-z]+/)
  return !words.some(
    (word, index) =>
      (neverForTests.includes(word) || word.startsWith('production')) &&
      !turning.includes(words[index - 1] ?? ''),
  )
}

/** Environment variables that usually name the environment of a process. */
const telling: readonly string[] = ['NODE_ENV', 'ENVIRONMENT']

/**
 * Returns why the environment forbids faults; undefined when faults are allowed. Any environment not known to be for
 * tests forbids faults. Called once at boot, so no later change can allow faults.
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

/**
 * Returns why the plan may not be armed: a forbidden environment, `chaos.enabled` is false, or an empty plan. Undefined
 * when the plan may be armed.
 */
export function refusalOf(lock: string | undefined, enabled: boolean, faults: number): string | undefined {
  if (lock !== undefined) return `refused: ${lock}`
  if (!enabled) return 'refused: chaos.enabled is false'
  if (faults === 0) return 'refused: the plan has no faults'
  return undefined
}
