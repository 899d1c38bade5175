/** What decides whether faults may be armed here at all. */
export interface Locks {
  /** The config's `gateway.environment`, as it was at boot. */
  readonly environment: string | undefined
  /** The process's environment variables, as they were at boot. */
  readonly variables: Readonly<Record<string, string | undefined>>
}

/** The environment lock: why it refuses, or undefined. Taken once at boot, so that nothing can open it later. */
export function environmentLock({ environment, variables }: Locks): string | undefined {
  if (environment === undefined || environment === '') {
    return 'gateway.environment is not set, which counts as production; set it to the name of a test environment'
  }
  if (isProduction(environment)) return `gateway.environment is "${environment}"`
  for (const name of ['NODE_ENV', 'ENVIRONMENT']) {
    const value = variables[name]
    if (value !== undefined && isProduction(value)) return `the environment variable ${name} is "${value}"`
  }
  return undefined
}

const isProduction = (name: string) => /^prod(uction)?\b/i.test(name.trim())

/** The three keys: the environment, the flag and a plan. Says which one is missing; undefined when none is. */
export function refusalOf(lock: string | undefined, enabled: boolean, faults: number): string | undefined {
  if (lock !== undefined) return `refused: ${lock}`
  if (!enabled) return 'refused: chaos.enabled is false'
  if (faults === 0) return 'refused: the plan has no faults'
  return undefined
}
