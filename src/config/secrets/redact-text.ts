/** What stands for a secret. */
export const REDACTED = '[redacted]'

const SECRET_WORD =
  '(?:api[-_]?key|access[-_]?key|private[-_]?key|token|secret|passw(?:or)?d|pwd|auth|bearer|credential|cookie|header)'

/** `--api-key`, `-H`: the next word is the secret. */
const SECRET_FLAG = new RegExp(`^(?:-H|--?[\\w-]*${SECRET_WORD}[\\w-]*)$`, 'i')

/** `--token=…`, `API_KEY=…`, `Authorization: …`: what follows is the secret. */
const SECRET_PAIR = new RegExp(`^(.*?${SECRET_WORD}[\\w-]*["']?\\s*[=:]\\s*)(?=\\S).*$`, 'is')

/** Keys that their issuers mark. */
const SECRET_SHAPE = /\b(?:sk-|gh[opsu]_|github_pat_|xox[abeprs]-|glpat-|AKIA|eyJ)[\w.-]{8,}/g

/** Takes user, password, query values and fragment out of every URL within `text`. */
export function redactUrls(text: string): string {
  return text.replace(/([a-z][a-z0-9+.-]*:\/\/)([^\s"'<>]*)/gi, (_, scheme: string, rest: string) => {
    const [, authority = '', path = '', query] = /^([^/?#]*)([^?#]*)(?:\?([^#]*))?/.exec(rest) ?? []
    const host = authority.includes('@')
      ? `${REDACTED}@${authority.slice(authority.lastIndexOf('@') + 1)}`
      : authority
    return (
      scheme +
      host +
      path +
      (query === undefined ? '' : `?${query.split('&').map(redactParameter).join('&')}`)
    )
  })
}

function redactParameter(parameter: string): string {
  const equals = parameter.indexOf('=')
  return equals === -1 ? REDACTED : parameter.slice(0, equals + 1) + REDACTED
}

/** Takes out of a command line what looks like a secret: by the name of its option, as part of a URL, by its shape. */
export function redactArgs(args: readonly string[]): string[] {
  return args.map((arg, index) => {
    const previous = args[index - 1]
    if (previous !== undefined && SECRET_FLAG.test(previous) && !arg.startsWith('-')) return REDACTED
    return redactUrls(arg.replace(SECRET_PAIR, `$1${REDACTED}`)).replace(SECRET_SHAPE, REDACTED)
  })
}
