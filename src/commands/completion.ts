import { Misuse, runCommand } from './shared/arguments.ts'
import type { Commands, Run } from './listed.ts'

const usage = `breakwater completion [bash | zsh]

  Prints the completion script for commands and options, the same for bash and zsh. For this shell, or in ~/.bashrc or ~/.zshrc:

  source <(breakwater completion)

  --help                  this text`

/**
 * `breakwater completion`: reads options, subcommands and studies from the commands' help, so the script needs no list
 * of its own.
 */
export function completionOf(commands: Commands): Run {
  return (args, out) =>
    runCommand(args, { usage, options: {} }, out, (_, [shell = 'bash', extra]) => {
      if (!['bash', 'zsh'].includes(shell))
        throw new Misuse(`there is a script for bash and zsh, but not for "${shell}"`)
      if (extra !== undefined) throw new Misuse(`unexpected argument "${extra}"`)
      out.stdout(scriptOf(Object.keys(commands)))
      return Promise.resolve(0)
    })
}

const scriptOf = (names: readonly string[]) => `if [ -n "\${ZSH_VERSION-}" ]; then
  autoload -Uz compinit bashcompinit && compinit -u && bashcompinit
fi
_breakwater() {
  local word=\${COMP_WORDS[COMP_CWORD]} command=\${COMP_WORDS[1]} words help
  if [ "$COMP_CWORD" -eq 1 ] || [ "$COMP_CWORD $command" = '2 help' ]; then
    words='${names.join(' ')}'
  else
    help=$("\${COMP_WORDS[0]}" help "$command" 2>/dev/null)
    words=$(printf '%s\\n' "$help" | grep -oE -e '--[a-z][a-z-]*')
    if [ "$COMP_CWORD" -eq 2 ]; then
      words="$words $(printf '%s\\n' "$help" | sed -nE -e "s/^ *breakwater $command \\[?([a-z-]+( [|] [a-z-]+)*).*/\\1/p" \\
        -e 's/^  ([a-z-]+) .*\\(seeds: [0-9]+\\)$/\\1/p' | tr -d '|')"
    fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _breakwater breakwater`
