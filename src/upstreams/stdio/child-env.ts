/**
 * What a server inherits of our own environment: who and where it is, and how it speaks to people. Nothing
 * that may hold a secret, so neither proxies (their URLs carry passwords) nor settings of package managers;
 * a server that needs those names them in its own `env`.
 */
const inherited = [
  'HOME',
  'LANG',
  'LC_ALL',
  'LC_CTYPE',
  'LOGNAME',
  'PATH',
  'SHELL',
  'TERM',
  'TMPDIR',
  'TZ',
  'USER',
] as const

/** The environment of a child process: the safe part of ours, and what is configured on top of it. */
export function childEnv(
  own: NodeJS.ProcessEnv,
  configured: Readonly<Record<string, string>>,
): Record<string, string> {
  const env: Record<string, string> = {}
  for (const name of inherited) {
    const value = own[name]
    // A value that begins so is an exported shell function, which a shell would run.
    if (value !== undefined && !value.startsWith('()')) env[name] = value
  }
  return { ...env, ...configured }
}
