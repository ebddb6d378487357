/* SPDX-License-Identifier: MIT */
/*
 * terminal.c - the terminal by ANSI sequences: another screen, no cursor, keys without echo.
 *
 * What was set is set back at the end, also by SIGINT, SIGTERM, SIGHUP and SIGTSTP, which end
 * the program.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/symm-top/top.h"
#include "util/file.h"

#define OPEN  "\033[?1049h\033[?25l\033[?7l" /* other screen, no cursor, no wrap */
#define CLOSE "\033[?7h\033[?25h\033[?1049l"

static struct termios before;
static volatile sig_atomic_t ended;

static void note_end(int signal)
{
    (void)signal;
    ended = 1;
}

bool symm__terminal_open(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP};
    struct sigaction action = {.sa_handler = note_end};
    struct termios raw;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &action, NULL);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0)
        return false;
    (void)symm__write_all(STDOUT_FILENO, OPEN, sizeof(OPEN) - 1);
    return true;
}

void symm__terminal_close(void)
{
    (void)symm__write_all(STDOUT_FILENO, CLOSE, sizeof(CLOSE) - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void symm__terminal_draw(const char *text)
{
    struct winsize size = {0};
    const char *line = text;
    int rows = 24, columns = 80;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) {
        rows = size.ws_row;
        columns = size.ws_col;
    }
    /* From the top; each line clears what it leaves of the one before it there. */
    fputs("\033[H", stdout);
    for (int row = 0; row < rows && *line; row++) {
        const int length = (int)strcspn(line, "\n");

        printf("%s%.*s\033[K", row > 0 ? "\r\n" : "",
               length < columns ? length : columns, line);
        line += length + (line[length] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

int symm__terminal_key(double seconds)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    struct timespec span = {.tv_sec = (time_t)seconds};
    char key;
    int got;

    span.tv_nsec = (long)((seconds - (double)span.tv_sec) * 1e9);
    got = ended ? -1 : ppoll(&input, 1, &span, NULL);
    if (got < 0)
        return ended || errno != EINTR ? -1 : 0; /* EINTR: the window's size */
    if (got == 0)
        return 0;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : -1;
}
