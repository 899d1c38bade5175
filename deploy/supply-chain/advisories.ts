import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import { root } from './packages.ts'

/** The result of `npm audit --json`: the exit code, and the message. */
export interface Audited {
  readonly code: 0 | 1
  readonly lines: readonly string[]
}

interface Audit {
  readonly message?: string
  readonly vulnerabilities?: Readonly<Record<string, { readonly severity: string; readonly range: string }>>
}

/** Reads the output of `npm audit --json`. A registry without an advisory service is reported, and is no failure. */
export function readAudit(stdout: string): Audited {
  const audit = auditIn(stdout)
  if (audit?.vulnerabilities === undefined) {
    const why = audit?.message ?? 'npm audit gave no answer'
    return { code: 0, lines: [`not checked: the registry has no advisory service (${why})`] }
  }
  const found = Object.entries(audit.vulnerabilities)
  if (found.length === 0)
    return { code: 0, lines: ['no advisories about packages installed with Breakwater'] }
  return { code: 1, lines: found.map(([name, { severity, range }]) => `${severity}: ${name} ${range}`) }
}

function auditIn(stdout: string): Audit | undefined {
  try {
    return JSON.parse(stdout) as Audit
  } catch {
    return undefined
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { stdout } = spawnSync('npm', ['audit', '--omit', 'dev', '--json'], { cwd: root, encoding: 'utf8' })
  const { code, lines } = readAudit(stdout)
  for (const line of lines) console.log(line)
  process.exitCode = code
}
