import {
  isPlainLogin,
  isReference,
  isSecretName,
  looksLikeKey,
  REDACTED,
  redactArgs,
  redactShapes,
} from '../secrets/redact-text.ts'
import { variableFor } from '../files/interpolate.ts'

/** Replaces secrets in a config's servers with variables, and keeps the variables' names. */
export class Variables {
  /** The value that each variable replaces; undefined for a variable that the user must set. */
  readonly #values = new Map<string, string | undefined>()

  /** Returns a reference to a variable that the user must set. Never uses a variable that already replaces a value. */
  ask(name: string): string {
    const asked = variableFor(name)
    const variable = this.#values.get(asked) === undefined ? asked : this.#numbered(asked, undefined)
    this.#values.set(variable, undefined)
    return `\${${variable}}`
  }

  /**
   * Returns a reference to a variable that replaces a value. Uses the first of `names` that does not replace another
   * value.
   */
  standIn(value: string, ...names: readonly string[]): string {
    const variables = names.map(variableFor)
    const free = variables.find((name) => !this.#values.has(name) || this.#values.get(name) === value)
    const variable = free ?? this.#numbered(variables.at(-1) ?? 'SECRET', value)
    this.#values.set(variable, value)
    return `\${${variable}}`
  }

  #numbered(name: string, value: string | undefined): string {
    let count = 2
    while (this.#values.has(`${name}_${count}`) && this.#values.get(`${name}_${count}`) !== value) count++
    return `${name}_${count}`
  }
}

/** Returns true if a value must not appear in a file, because its name or its form looks secret. */
function isSecret(name: string, value: string): boolean {
  if (value === '' || isReference(value)) return false
  return isSecretName(name) || looksLikeKey(value) || redactShapes(value) !== value
}

/**
 * Returns environment variables with references in place of secrets. A reference uses the variable's own name if it is
 * free.
 */
export function secretEnv(
  server: string,
  env: Readonly<Record<string, string>>,
  variables: Variables,
): Record<string, string> {
  return mapped(env, (value, name) =>
    isSecret(name, value) ? variables.standIn(value, name, `${server}_${name}`) : value,
  )
}

/** Returns headers with references in place of secrets. The scheme in `Authorization: Bearer …` stays. */
export function secretHeaders(
  server: string,
  headers: Readonly<Record<string, string>>,
  variables: Variables,
): Record<string, string> {
  return mapped(headers, (value, name) => {
    const isCredential = /^(proxy-)?authorization$/i.test(name)
    if (isReference(value) || !(isCredential || isSecret(name, value))) return value
    const [, scheme = '', credential = value] = (isCredential && /^([\w-]+ +)(\S.*)$/.exec(value)) || []
    return scheme + variables.standIn(credential, `${server}_${isCredential ? 'token' : name}`)
  })
}

/**
 * Returns a command line with references in place of secret-looking words or parts of words. `Variables` keeps the
 * whole word as the value.
 */
export function secretArgs(server: string, args: readonly string[], variables: Variables): string[] {
  const redacted = redactArgs(args)
  return args.map((arg, index) => {
    const shown = redacted[index] ?? arg
    return shown.replaceAll(REDACTED, () => variables.standIn(arg, `${server}_arg_${index + 1}`))
  })
}

/**
 * Returns a URL with references in place of user and password, parameters with secret names, and segments that look
 * like keys.
 */
export function secretUrl(server: string, url: string, variables: Variables): string {
  return url
    .replace(/^(\w+:\/\/)([^/?#]*)@/, (whole, scheme: string, login: string) =>
      isPlainLogin(login) ? whole : `${scheme}${variables.standIn(login, `${server}_login`)}@`,
    )
    .replace(/([?&])([^=&#]+)=([^&#]+)/g, (whole, mark: string, name: string, value: string) =>
      isSecret(name, value) ? `${mark}${name}=${variables.standIn(value, `${server}_${name}`)}` : whole,
    )
    .replace(/\/([^/?#]{8,})/g, (whole, segment: string) =>
      looksLikeKey(segment) || redactShapes(segment) !== segment
        ? `/${variables.standIn(segment, `${server}_key`)}`
        : whole,
    )
}

function mapped(
  values: Readonly<Record<string, string>>,
  change: (value: string, name: string) => string,
): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value, name)]))
}
