import { lstat, writeFile } from 'node:fs/promises'
import { keyIdOf, newKey, SHORTEST_PASSPHRASE } from '../../approval/keys.ts'
import type { Env } from '../../config/files/interpolate.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  unknownCommand,
  UnusableInput,
} from '../shared/arguments.ts'
import { askPassphrase } from './passphrase.ts'
import { headerOf } from './signer.ts'

const options = {
  name: { kind: 'text', value: 'NAME', about: 'your name in gateway.controlMcp.trust' },
  out: { kind: 'text', value: 'FILE', about: 'file of the private key (default: NAME.pem)' },
} as const

const usage = `breakwater key new --name NAME [--out FILE]

  Makes the key of a person, for signing envelopes, approvals, anchors and evidence reports. The file holds the private key,
  encrypted with a passphrase of at least ${SHORTEST_PASSPHRASE} characters, which the command asks for on the terminal. Prints the public
  key, as an entry for the config.
  Keep the file where no agent can run programs as you.

${optionLines(options)}`

/** `breakwater key new`: resolves to the exit code. */
export function key(args: readonly string[], out: Output, _: Env): Promise<number> {
  const asked = { usage, options, positionals: ['new'] }
  return runCommand(args, asked, out, async ({ name, out: file = `${name}.pem` }, [action = '']) => {
    if (action !== 'new') throw new Misuse(unknownCommand(action, ['new']))
    if (name === undefined) throw new Misuse('--name is missing')
    if (!/^[\w.-]{1,64}$/.test(name)) throw new Misuse('--name must be 1 to 64 of A-Z a-z 0-9 _ . -')
    const isTaken = await lstat(file).then(
      () => true,
      () => false,
    )
    if (isTaken)
      throw new UnusableInput(`${file} exists already: give another file with --out, or remove the file`)
    const passphrase = await askPassphrase(`New passphrase, at least ${SHORTEST_PASSPHRASE} characters`)
    if ([...passphrase].length < SHORTEST_PASSPHRASE)
      throw new UnusableInput(`the passphrase has fewer than ${SHORTEST_PASSPHRASE} characters`)
    if ((await askPassphrase('The same passphrase again')) !== passphrase)
      throw new UnusableInput('the two passphrases differ')
    const { pem, publicText } = newKey(passphrase)
    await writeFile(file, `${headerOf(name)}${pem}`, { mode: 0o600, flag: 'wx' }).catch((error: Error) => {
      throw new UnusableInput(`${file} cannot be written: ${error.message}`)
    })
    out.stderr(`breakwater: the private key ${keyIdOf(publicText)} is in ${file}`)
    out.stdout('gateway:\n  controlMcp:\n    trust:')
    out.stdout(`      - { name: ${name}, key: ${publicText} }`)
    out.stderr(
      `breakwater: your signatures are checked with --trust ${name}=${publicText}, or with this entry`,
    )
    return 0
  })
}
