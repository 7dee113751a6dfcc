/** `sluice completion`: prints a completion script for a shell, with all commands and flags. */
import { Argument, Command, type Option } from 'commander';
import { printLine } from './print.ts';
import { prepare } from './run-program.ts';

/** Value of a flag: none, one of some words, a file, a folder, or any text. */
type Value = readonly string[] | 'none' | 'file' | 'folder' | 'text';
/** A word of the command line, with its description. */
type Word = readonly [word: string, description: string];
type Flag = { names: readonly string[]; description: string; value: Value };
/** A command such as `sluice project list`, and the words and flags that may follow it. */
type Place = { path: string; words: readonly Word[]; flags: readonly Flag[] };

function takenBy({ required, optional, argChoices, flags }: Option): Value {
  if (!required && !optional) return 'none';
  if (argChoices) return argChoices;
  const named = /<(file|folder)>/.exec(flags)?.[1];
  return named === 'file' || named === 'folder' ? named : 'text';
}

function placesOf(command: Command, path: string): Place[] {
  const help = command.createHelp();
  const subs = help.visibleCommands(command);
  const choices = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  const flags = help.visibleOptions(command).map((option) => ({
    names: [option.short, option.long].filter((name) => name !== undefined),
    description: option.description,
    value: takenBy(option),
  }));
  const words: Word[] = [
    ...subs.map((sub) => [sub.name(), sub.description()] as const),
    ...choices.map((choice) => [choice, ''] as const),
  ];
  const own = { path, words, flags };
  return [own, ...subs.flatMap((sub) => placesOf(sub, `${path} ${sub.name()}`))];
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
const escaped = (text: string): string => text.replaceAll(' ', '\\ ');

/**
 * Makes the branches of a shell's `case` that completes values of flags. A branch matches a command
 * and the flag before the cursor.
 */
function valueBranches(
  places: readonly Place[],
  actionOf: (value: Value) => string,
  { open }: { open: '' | '(' },
): string[] {
  const branches = new Map<string, string[]>();
  for (const { path, flags } of places)
    for (const { names, value } of flags) {
      if (value === 'none') continue;
      const action = actionOf(value);
      const patterns = names.map((name) => quoted(`${path} ${name}`));
      branches.set(action, [...(branches.get(action) ?? []), ...patterns]);
    }
  return [...branches].map(([action, patterns]) => `    ${open}${patterns.join(' | ')}) ${action} ;;`);
}

const everyPath = (places: readonly Place[]): string[] => places.slice(1).map(({ path }) => quoted(path));

function bash(places: readonly Place[]): string {
  const among = (words: readonly string[]): string =>
    `COMPREPLY=($(compgen -W ${quoted(words.map((word) => escaped(escaped(word).replaceAll('\\', '\\\\'))).join('\n'))} -- "$cur"))`;
  const actionOf = (value: Value): string => {
    if (value === 'text') return 'return';
    if (typeof value !== 'string') return `${among(value)}; return`;
    return `compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -${value === 'file' ? 'f' : 'd'} -- "$cur")); return`;
  };
  const wordsOf = ({ words, flags }: Place): string[] => [
    ...words.map(([word]) => word),
    ...flags.flatMap(({ names }) => names.filter((name) => name.startsWith('--'))),
  ];
  return `# Completion of sluice for bash. In ~/.bashrc: eval "$(sluice completion bash)"
_sluice() {
  local IFS=$'\\n' cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} at=sluice i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
      ${everyPath(places).join(' | ')}) at+=" \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at $prev" in
${valueBranches(places, actionOf, { open: '' }).join('\n')}
  esac
  case "$at" in
${places.map((place) => `    ${quoted(place.path)}) ${among(wordsOf(place))} ;;`).join('\n')}
  esac
}
complete -F _sluice sluice`;
}

function zsh(places: readonly Place[]): string {
  const actionOf = (value: Value): string => {
    if (value === 'text') return '_message value; return';
    if (typeof value !== 'string') return `compadd -- ${value.map(quoted).join(' ')}; return`;
    return `_files${value === 'folder' ? ' -/' : ''}; return`;
  };
  const wordsOf = ({ words, flags }: Place): string => {
    const ofFlags = flags.flatMap(({ names, description }) => names.map((name): Word => [name, description]));
    return [...words, ...ofFlags].map(([word, text]) => quoted(text ? `${word}:${text}` : word)).join(' ');
  };
  return `#compdef sluice
# Completion of sluice for zsh. In ~/.zshrc, behind compinit: eval "$(sluice completion zsh)"
_sluice() {
  local at=sluice word
  local -a found
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      (${everyPath(places).join(' | ')}) at+=" $word" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${valueBranches(places, actionOf, { open: '(' }).join('\n')}
  esac
  case "$at" in
${places.map((place) => `    (${quoted(place.path)}) found=(${wordsOf(place)}) ;;`).join('\n')}
  esac
  _describe sluice found
}
compdef _sluice sluice`;
}

function fish(places: readonly Place[]): string {
  const quotedFor = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
  const valueText = (value: Value): string => {
    if (value === 'none') return '';
    if (value === 'text') return ' -x';
    if (typeof value !== 'string') return ` -x -a ${quotedFor(value.map(escaped).join(' '))}`;
    return value === 'file' ? ' -r -F' : " -x -a '(__fish_complete_directories)'";
  };
  const linesOf = ({ path, words, flags }: Place): string[] => {
    const begin = `complete -c sluice -n "__sluice_at '${path}'"`;
    const described = (text: string): string => (text ? ` -d ${quotedFor(text)}` : '');
    return [
      ...words.map(([word, text]) => `${begin} -a ${quotedFor(word)}${described(text)}`),
      ...flags.map(({ names, description, value }) => {
        const forms = names.map((name) => name.replace(/^--/, '-l ').replace(/^-(\w)$/, '-s $1'));
        return `${begin} ${forms.join(' ')}${valueText(value)}${described(description)}`;
      }),
    ];
  };
  return `# Completion of sluice for fish. In ~/.config/fish/config.fish: sluice completion fish | source
function __sluice_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l at sluice
    for word in $words
        switch "$at $word"
            case ${everyPath(places).join(' ')}
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
complete -c sluice -f
${places.flatMap(linesOf).join('\n')}`;
}

const SHELLS = { bash, zsh, fish } as const;

/** @param load makes the program with all of its commands */
export const completionCommand = (load: () => Promise<Command>): Command =>
  new Command('completion')
    .description('print the script with which a shell completes commands and flags')
    .addArgument(new Argument('<shell>').choices(Object.keys(SHELLS)))
    .addHelpText('after', '\nFor example in ~/.bashrc:  eval "$(sluice completion bash)"')
    .action(async (shell: keyof typeof SHELLS) => {
      const program = await load();
      prepare(program);
      printLine(SHELLS[shell](placesOf(program, program.name())));
    });
